#pragma once
/// \file
/// Owners of one object, of an array, and of a value that comes late: what the library needs of std::unique_ptr and
/// std::optional in a tenth of the functions to compile, of which each program that includes it has a dozen instances.

#include <vccl/base/config.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace vccl::inline v0 {

template <class T>
struct delete_object {
    void operator()(T* p) const noexcept { delete p; }
};

/// Sole owner of what `Delete` ends.
template <class T, class Delete = delete_object<T>>
class owned {
public:
    owned() = default;
    explicit owned(T* p) noexcept : p_(p) {}
    owned(owned&& o) noexcept : p_(o.release()) {}
    owned& operator=(owned&& o) noexcept {
        reset(o.release());  // taken first: `o` may live in what goes
        return *this;
    }
    ~owned() { reset(); }

    void reset(T* p = nullptr) noexcept {
        if (p_) Delete{}(p_);
        p_ = p;
    }
    T* release() noexcept {
        T* const p = p_;
        p_ = nullptr;
        return p;
    }
    T* get() const noexcept { return p_; }
    T& operator*() const noexcept { return *p_; }
    T* operator->() const noexcept { return p_; }
    explicit operator bool() const noexcept { return p_ != nullptr; }

private:
    T* p_{};
};

template <class T>
struct delete_array {
    void operator()(T* p) const noexcept { delete[] p; }
};

/// Sole owner of an array.
template <class T>
class owned_array : public owned<T, delete_array<T>> {
public:
    using owned<T, delete_array<T>>::owned;
    T& operator[](std::size_t i) const noexcept { return this->get()[i]; }
};

/// A value that comes into being after its owner, and may go before it.
template <class T>
class late {
public:
    late() noexcept {}
    late(const late&) = delete;
    late& operator=(const late&) = delete;
    ~late() { reset(); }

    template <class... Args>
    T& emplace(Args&&... args) {
        reset();
        ::new (static_cast<void*>(&value_)) T(std::forward<Args>(args)...);
        there_ = true;
        return value_;
    }
    void reset() noexcept {
        if (there_) value_.~T();
        there_ = false;
    }
    T& operator*() noexcept { return value_; }
    const T& operator*() const noexcept { return value_; }
    T* operator->() noexcept { return &value_; }
    const T* operator->() const noexcept { return &value_; }
    explicit operator bool() const noexcept { return there_; }

private:
    union {
        T value_;
    };
    bool there_{};
};

}  // namespace vccl::inline v0
