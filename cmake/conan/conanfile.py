"""Conan 2 recipe of the checkout that it lies in:  conan create cmake/conan"""
import pathlib
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout

required_conan_version = ">=2.0"


class Vccl(ConanFile):
    name = "vccl"
    description = "Header-only C++20 templates for RDMA between GPUs that outlives its network ports"
    license = "Apache-2.0"
    topics = ("rdma", "infiniband", "roce", "gpu", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    @property
    def _checkout(self):
        return pathlib.Path(self.recipe_folder).parent.parent

    def set_version(self):
        config = load(self, self._checkout / "include/vccl/base/config.hpp")
        self.version = ".".join(re.search(rf"#define VCCL_VERSION_{part} (\d+)", config).group(1) for part in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        copy(self, "LICENSE", self._checkout, self.export_sources_folder)
        copy(self, "include/vccl/*", self._checkout, self.export_sources_folder)

    def layout(self):
        basic_layout(self, src_folder=".")

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def package(self):
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder) / "licenses")
        copy(self, "*", pathlib.Path(self.source_folder) / "include", pathlib.Path(self.package_folder) / "include")

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_file_name", "vccl")
        # Each stands on the headers and on its own library of the system.
        for component, libraries in (("headers", []), ("soft", ["pthread", "rt"]), ("ibv", ["ibverbs", "pthread"])):
            part = self.cpp_info.components[component]
            part.set_property("cmake_target_name", "vccl::vccl" if component == "headers" else f"vccl::{component}")
            part.bindirs = []
            part.libdirs = []
            part.system_libs = libraries
            if component != "headers":
                part.requires = ["headers"]
