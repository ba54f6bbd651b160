#pragma once
/// \file
/// `device_moe`: the host side of moe_link.hpp. Lays the streams of a rank into the windows of a device_mesh and makes the table of
/// them that kernels take with `ref()`. Set-up thread.

#include <vccl/coll/device_mesh.hpp>
#include <vccl/coll/moe_link.hpp>

namespace vccl::inline v0 {

/// `TxRef`: what kernels send with: the senders' ref(), or that of host rings before them.
template <class Mesh, class TxRef = typename Mesh::sender::ref_type>
class device_moe {
    using space = typename Mesh::space;
    using link = moe_link<TxRef>;

public:
    using ref_type = moe_streams<TxRef>;  ///< what a kernel takes

    /// What the mesh needs: windows of so many bytes, so many signal words.
    static device_mesh_options mesh_options_of(const moe_layout& layout, device_options ends = {}) noexcept {
        ends.signals = link::words * layout.parts;
        return {ends, layout.window_bytes()};
    }

    /// `refs(peer)`: what kernels of this rank send to a peer with. Errors: invalid_argument (the layout, or a mesh made for another),
    /// no_memory.
    template <class Refs>
    static result<owned<device_moe>> make(Mesh& mesh, const moe_layout& layout, Refs&& refs) {
        if (!layout.valid() || layout.ranks != mesh.ranks() || mesh.options().window_bytes < layout.window_bytes() ||
            mesh.options().ends.signals < link::words * layout.parts)
            return errc::invalid_argument;
        owned<device_moe> made(new (std::nothrow) device_moe(mesh, layout));
        if (!made || !made->lay_out(refs)) return errc::no_memory;
        return made;
    }
    device_moe(const device_moe&) = delete;
    ~device_moe() {
        if (links_) space::shared::free(links_);
        if (words_) space::shared::free(words_);
        if (places_) mesh_.memory().free_local(places_);
    }

    /// What kernels take. They must have ended before this goes.
    ref_type ref() const noexcept { return {layout_, mesh_.rank(), links_}; }

private:
    device_moe(Mesh& mesh, const moe_layout& layout) noexcept : mesh_(mesh), layout_(layout) {}

    template <class Refs>
    bool lay_out(Refs&& refs) {
        const std::uint64_t streams = std::uint64_t{layout_.ranks} * layout_.parts, places = layout_.rows() + 1;
        links_ = static_cast<link*>(space::shared::allocate(streams * sizeof(link)));
        words_ = static_cast<own_words*>(space::shared::allocate(sizeof(own_words)));
        places_ = static_cast<std::uint32_t*>(mesh_.memory().allocate_local(streams * places * 4));
        if (!links_ || !words_ || !places_) return false;
        const device_options& ends = mesh_.options().ends;
        for (std::uint32_t p = 0; p < layout_.ranks; ++p)
            for (std::uint32_t part = 0; part < layout_.parts; ++part) {
                const std::uint64_t i = std::uint64_t{p} * layout_.parts + part, offset = part * layout_.stream_bytes();
                link& l = *::new (&links_[i]) link{};
                const bool own = p == mesh_.rank();
                l.out = mesh_.out(p) + offset;
                l.in = own ? l.out : mesh_.in(p) + offset;
                l.offset = offset;
                l.places = places_ + i * places;
                l.word = link::words * part;
                if (own) {
                    l.own = words_->signal;
                    l.rx = {words_->signal, device::max_signal_words, &words_->host, ends.wait, ends.timeout.count};
                } else {
                    l.tx = refs(p).channel(part);
                    l.rx = mesh_.from(p).ref();
                }
            }
        return true;
    }

    struct own_words {
        device::host_words host;
        std::uint64_t signal[device::max_signal_words];
    };
    Mesh& mesh_;
    moe_layout layout_;
    link* links_{};
    own_words* words_{};
    std::uint32_t* places_{};
};

}  // namespace vccl::inline v0
