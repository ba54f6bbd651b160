/// \file
/// What launchers put into the environment, and what is made of it.

#include <vccl/bootstrap/environment.hpp>

#include <doctest/doctest.h>

#include <map>

using namespace vccl;

namespace {

using variables = std::map<std::string, std::string>;

/// `get` of an environment of these alone.
auto reader_of(const variables& v) {
    return [&v](const char* name) -> const char* {
        const auto at = v.find(name);
        return at == v.end() ? nullptr : at->second.c_str();
    };
}
result<job_place> read(const variables& v, std::string& why) { return read_job_place(reader_of(v), why); }

void check(const variables& v, std::uint32_t rank, std::uint32_t ranks, std::uint32_t local_rank, std::string_view root) {
    std::string why;
    const auto p = read(v, why);
    CHECK_MESSAGE(p, why);
    if (!p) return;
    CHECK(p->rank == rank);
    CHECK(p->ranks == ranks);
    CHECK(p->local_rank == local_rank);
    CHECK(p->root == root);
}
void refuse(const variables& v, errc code, std::string_view word) {
    std::string why;
    CHECK(read(v, why).error().code == code);
    CHECK_MESSAGE(why.find(word) != std::string::npos, why);
}

}  // namespace

TEST_CASE("torchrun's variables; its own port is left to it") {
    check({{"RANK", "5"},
           {"WORLD_SIZE", "16"},
           {"LOCAL_RANK", "1"},
           {"LOCAL_WORLD_SIZE", "4"},
           {"MASTER_ADDR", "node7"},
           {"MASTER_PORT", "29500"}},
          5, 16, 1, "node7:29501");
    check({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}, {"VCCL_PORT", "4000"}}, 0, 2,
          0, "node7:4000");
}

TEST_CASE("Open MPI's and PMI's variables: on one host nothing else is needed, on several an address is") {
    check({{"OMPI_COMM_WORLD_RANK", "3"},
           {"OMPI_COMM_WORLD_SIZE", "4"},
           {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
          3, 4, 3, "127.0.0.1:29555");
    check({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, 1, 2, 1, "127.0.0.1:29555");
    refuse({{"OMPI_COMM_WORLD_RANK", "3"},
            {"OMPI_COMM_WORLD_SIZE", "8"},
            {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
           errc::parse_error, "VCCL_ROOT");
    check({{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}, {"VCCL_ROOT", "[fd00::1]:77"}}, 1, 8, 0, "[fd00::1]:77");
}

TEST_CASE("Slurm's variables: the first node of the step is the root") {
    check({{"SLURM_PROCID", "9"},
           {"SLURM_NTASKS", "16"},
           {"SLURM_LOCALID", "1"},
           {"SLURM_STEP_NODELIST", "gpu[03-07,9]"},
           {"SLURM_JOB_NODELIST", "gpu[01-09]"}},
          9, 16, 1, "gpu03:29555");
    check({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_NODELIST", "alone"}}, 0, 1, 0,
          "alone:29555");
    CHECK(first_host("a1,b[2-3]") == "a1");
    CHECK(first_host("rack[2,5-6]-ib,x") == "rack2-ib");
    CHECK(first_host("n[1") == "n1");
}

TEST_CASE("One's own variables come before all others") {
    check({{"VCCL_RANK", "1"}, {"VCCL_RANKS", "3"}, {"VCCL_ROOT", "h:1"}, {"RANK", "7"}, {"WORLD_SIZE", "8"}}, 1, 3, 0, "h:1");
}

TEST_CASE("What makes no sense is refused with what to do") {
    refuse({}, errc::not_found, "torchrun");
    refuse({{"RANK", "8"}, {"WORLD_SIZE", "8"}}, errc::parse_error, "RANK");
    refuse({{"RANK", "x"}, {"WORLD_SIZE", "8"}}, errc::parse_error, "RANK");
    refuse({{"RANK", "0"}}, errc::parse_error, "WORLD_SIZE");
    refuse({{"RANK", "-1"}, {"WORLD_SIZE", "8"}}, errc::parse_error, "RANK");
    refuse({{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}, errc::parse_error, "WORLD_SIZE");
    refuse({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"VCCL_PORT", "70000"}}, errc::parse_error, "VCCL_PORT");
}

TEST_CASE("What is out of range or no number is refused with the variable's name and value") {
    const variables torchrun{{"RANK", "1"},        {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
    const auto changed = [](variables v, const std::string& name, const std::string& value) {
        v[name] = value;
        refuse(v, errc::parse_error, name + " must be ");
        refuse(v, errc::parse_error, "\"" + value + "\"");
    };
    for (const char* value : {"", "x", "-1", "1.5", "4", " 1", "99999999999"})
        for (const char* name : {"RANK", "LOCAL_RANK"}) changed(torchrun, name, value);
    for (const char* value : {"", "x", "-4", "0", "65537", "4 "}) changed(torchrun, "WORLD_SIZE", value);
    for (const char* value : {"", "x", "0", "5"}) changed(torchrun, "LOCAL_WORLD_SIZE", value);
    for (const char* value : {"", "x", "-1", "0", "65535", "70000", "29500a"}) changed(torchrun, "MASTER_PORT", value);
    for (const char* value : {"", "x", "0", "65536"}) changed(torchrun, "VCCL_PORT", value);
    for (const char* value : {"", "host", ":1", "host:", "host:0", "host:65536", "host:x"}) changed(torchrun, "VCCL_ROOT", value);
    variables v = torchrun;
    v["MASTER_ADDR"] = "";
    refuse(v, errc::parse_error, "MASTER_ADDR must name a host");

    const variables slurm{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}, {"SLURM_JOB_NODELIST", "a"}};
    for (const char* value : {"x", "2"})
        for (const char* name : {"SLURM_PROCID", "SLURM_LOCALID"}) changed(slurm, name, value);
    changed(slurm, "SLURM_NTASKS", "many");
    v = slurm;
    v["SLURM_STEP_NODELIST"] = "";
    refuse(v, errc::parse_error, "SLURM_STEP_NODELIST must name a host");
    changed({{"VCCL_RANKS", "2"}}, "VCCL_RANK", "two");
    changed({{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_RANK", "two");
    changed({{"PMI_SIZE", "2"}}, "PMI_RANK", "two");
    refuse({{"VCCL_RANKS", "2"}}, errc::parse_error, "VCCL_RANK must be");
}

TEST_CASE("Two jobs of one secret do not know each other, if anything names them") {
    std::string why;
    const auto key = [&](std::vector<std::pair<std::string_view, const char*>> variables) {
        variables.emplace_back("VCCL_SECRET", "0123456789abcdef");
        auto s = read_job_secret(
            [&](std::string_view name) -> const char* {
                for (const auto& [n, value] : variables)
                    if (n == name) return value;
                return nullptr;
            },
            why);
        REQUIRE(s);
        return std::string(reinterpret_cast<const char*>(s->bytes), sizeof s->bytes);
    };
    for (const char* name : {"VCCL_JOB", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"}) {
        CAPTURE(name);
        CHECK(key({{name, "1"}}) == key({{name, "1"}}));
        CHECK(key({{name, "1"}}) != key({{name, "2"}}));
        CHECK(key({{name, "1"}}) != key({}));
    }
    // The launcher's own name goes before that of the job that it runs in, which its ranks on other hosts may not see.
    CHECK(key({{"PMIX_NAMESPACE", "7"}, {"SLURM_JOB_ID", "1"}}) == key({{"PMIX_NAMESPACE", "7"}}));
}

TEST_CASE("The secret is asked for, and not taken if it is short") {
    std::string why;
    const variables none, short_one{{"VCCL_SECRET", "short"}};
    CHECK(read_job_secret(reader_of(none), why).error().code == errc::not_found);
    CHECK(why.find("openssl rand") != std::string::npos);
    CHECK(read_job_secret(reader_of(short_one), why).error().code == errc::invalid_argument);
    CHECK(why == "VCCL_SECRET must have at least 16 characters; it has 5");
    CHECK(read_job_secret([](const char*) -> const char* { return "0123456789abcdef"; }, why));
}
