/// Links every header's own object file with one that includes them all.
int main() {}
