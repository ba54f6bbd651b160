// Run under mpirun: ranks that meet over the communicator that MPI gives, and add up numbers over the software RNIC. The last
// line of rank 0 is "mpi_exchange: N ranks, all right".
#include <vccl/bootstrap/mpi.hpp>
#include <vccl/coll/host_mesh.hpp>
#include <vccl/model/shapes.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <cstdio>
#include <string>

using namespace vccl;
using namespace vccl::literals;

namespace {

using mesh = host_mesh<host_sender<verbs::soft, sibling_port>, host_receiver<verbs::soft, sibling_port>>;

int give_up(const char* what, status s = {}) {
    std::fprintf(stderr, "%s: errc %d detail %u\n", what, static_cast<int>(s.code), s.detail);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

result<verbs::soft_fabric> common_fabric(const mpi_exchange& x, const std::string& name) {
    auto made = x.rank() == 0 ? verbs::soft_fabric::create_shared(name, make_cluster(x.ranks(), 1, 2, 1)) : errc::not_found;
    MPI_Barrier(MPI_COMM_WORLD);
    return x.rank() == 0 ? std::move(made) : verbs::soft_fabric::attach(name);
}

int play(const std::string& name) {
    mpi_exchange exchange(MPI_COMM_WORLD);
    if (exchange.exchange({{exchange.ranks(), 0, {}}}, 10_s).error().code != errc::invalid_argument)
        return give_up("a parcel to nobody");
    auto fabric = common_fabric(exchange, name);
    if (!fabric) return give_up("fabric", fabric.error());
    auto host = fabric->host(fabric->shape().hosts[exchange.rank()].name.view());
    if (!host) return give_up("host", host.error());
    host_context<verbs::soft> context(*host, fabric->shape());
    std::vector<std::int64_t> numbers(100'000);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i * (exchange.rank() + 1));
    auto memory = context.register_memory(numbers.data(), numbers.size() * 8);
    if (!memory) return give_up("register_memory", memory.error());
    mesh m(context, gpu_id{static_cast<std::uint16_t>(exchange.rank())}, exchange.rank(), exchange.ranks(), {});
    if (status s = m.connect(exchange, 60_s); !s) return give_up("connect", s);
    auto comm = m.make_communicator();
    if (status s = comm.all_reduce(memory->view(), memory->view(), numbers.size(), element_type::int64, reduce_op::sum); !s)
        return give_up("all_reduce", s);
    if (status s = comm.wait(60_s); !s) return give_up("wait", s);
    const std::uint64_t factor = std::uint64_t{exchange.ranks()} * (exchange.ranks() + 1) / 2;
    for (std::size_t i = 0; i < numbers.size(); ++i)
        if (numbers[i] != static_cast<std::int64_t>(i * factor)) return give_up("a wrong sum");
    if (status s = m.close(30_s); !s) return give_up("close", s);
    MPI_Barrier(MPI_COMM_WORLD);
    if (exchange.rank() == 0) std::printf("mpi_exchange: %u ranks, all right\n", exchange.ranks());
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    MPI_Init(&count, &arguments);
    const int status = play(count > 1 ? arguments[1] : "mpi_exchange_test");
    MPI_Finalize();
    return status;
}
