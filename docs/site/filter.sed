# What Doxygen gets to read of a header, line by line: what falls away leaves an empty line, so that numbers stay.
# It takes the inline namespace for another namespace.
s/namespace vccl::inline v0/namespace vccl/
# Ids as types of their own, as they are meant: it takes overloads that differ in one for the same function.
s|^using \([a-z_]*\) = strong_id<struct \(.*\)>; *///< \(.*\)|/** \3 */ struct \1 : strong_id<\2> {};|
# Behind a constraint of a member function it loses its way.
s/^        requires\b.*[^;{]$//
# Classes that can be derived from are bases of the library's own: nothing protected is anybody else's.
s/^\( *\)protected:/\1private:/
# What senders and receivers have from their way to the protocol's core is theirs.
/How an endpoint reaches its protocol core/,$s/namespace vccl::detail/namespace vccl/
s/detail::core_access/core_access/
s|^ *// --- for endpoint ---$|private:|
# Which axis a policy is on stands in docs/concepts.md, once.
s/^ *using policy_axis = .*;$//
# Comparison, and who may be moved or copied, mean what they mean everywhere.
s/^ *\([a-zA-Z_:]* \)*[a-z_:]* operator\(==\|<=>\)(.*\(;\|}\)$//
s/^ *\(constexpr \)\?\([a-z_]*\)(\(const \)\?\2&&\? *[a-z_]*)\( noexcept\)\?\( = default\| = delete\)\?;$//
s/^ *\([a-z_]*\)& operator=(\(const \)\?\1&&\? *[a-z_]*)\( noexcept\)\?\( = default\| = delete\)\?;$//
s/^ *~[a-z_]*()\( = default\)\?;$//
