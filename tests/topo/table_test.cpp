#include "topo_table.hpp"

#include <vccl/model/shapes.hpp>

#include <doctest/doctest.h>

using namespace vccl_topo;

namespace {

row of(const std::vector<row>& rows, const std::string& policy) {
    for (const row& r : rows)
        if (r.policy == policy) return r;
    FAIL("no row for ", policy);
    return {};
}

}  // namespace

TEST_CASE("Dual-port NICs: the sibling port stands in, and stripes swap") {
    const topology t = make_cluster(dual_port_cluster);
    const auto rows = rows_of(t, gpu_id{5}, channel_id{1}, 2);
    CHECK(of(rows, "no_backup").lanes == "A.nic5.p0");
    CHECK(of(rows, "sibling_port").lanes == "A.nic5.p0 > A.nic5.p1");
    CHECK(of(rows, "channel_parity").lanes == "A.nic5.p1 > A.nic5.p0");
    CHECK(of(rows, "each_of<sibling_port, adjacent_gpu>").lanes == "A.nic5.p0 > A.nic5.p1 > A.nic4.p0");
    CHECK(of(rows, "each_of<sibling_port, adjacent_gpu>").why == "nearest; the same NIC's port 2; NIC of the partner A.gpu4");
    CHECK(of(rows, "stripe 0 of 2").lanes == "A.nic5.p0 > A.nic5.p1");
    CHECK(of(rows, "stripe 1 of 2").lanes == "A.nic5.p1 > A.nic5.p0");
}

TEST_CASE("Single-port NICs: a policy that finds no backup says so, the neighbour's NIC stands in") {
    const topology t = make_cluster(single_port_cluster);
    const auto rows = rows_of(t, gpu_id{0}, channel_id{0}, 1);
    CHECK(of(rows, "sibling_port").lanes == "A.nic0.p0");
    CHECK(of(rows, "sibling_port").why == "nearest; the policy knows no backup for it");
    CHECK(of(rows, "adjacent_gpu").lanes == "A.nic0.p0 > A.nic1.p0");
    CHECK(of(rows, "first_of<sibling_port, adjacent_gpu>").rails == "0 > 1");
}

TEST_CASE("More stripes than ports, or no NIC at all: the row says why") {
    topology t = make_cluster(1, 1, 2, 1);
    CHECK(of(rows_of(t, gpu_id{0}, channel_id{0}, 4), "stripes<4>").why.find("no such port") != std::string::npos);
    t.nics.clear();
    t.ports.clear();
    t.gpus[0].to_nic.clear();
    CHECK(of(rows_of(t, gpu_id{0}, channel_id{0}, 1), "sibling_port").lanes == "none");
}
