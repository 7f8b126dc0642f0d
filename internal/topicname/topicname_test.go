package topicname

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWantIsEmptyForValidNamesOnly(t *testing.T) {
	for _, name := range []string{"x", "a b", "tenant/ns/x", "tenant/cluster/ns/x", "persistent://tenant/ns/x",
		"persistent://prop/cluster/ns/x",
		"persistent://prop/cluster/ns/x/y//z", "non-persistent://tenant/ns/x", "persistent://my.tenant-1/ns:=_/ü x",
		"x-partition-1"} {
		require.Empty(t, Want(name), name)
	}
	for _, name := range []string{"", "a/b", "/x", "a//x", "a/b/", "a b/../c", "a/b/c/d/e", "http://x", "http://a/b/c",
		"://a/b/c", "persistent://",
		"persistent://x", "persistent://a/b", "persistent://a//c", "persistent:///b/c", "persistent://a/b/",
		"persistent://a/b//d", "persistent://a/b/c/",
		"persistent://ü/b/c", "x\n/b/c"} {
		require.Equal(t, "topic, tenant/namespace/topic or persistent://tenant/namespace/topic", Want(name), name)
	}
}

func TestWantNumberIsEmptyForNamesThatTheClientCanRead(t *testing.T) {
	for _, name := range []string{"x", "x-partition", "x-partition-1", "x-partition-eu-1", "x-1-RETRY"} {
		require.Empty(t, WantNumber(name), name)
	}
	for _, name := range []string{"x-partition-", "x-partition-eu", "persistent://a/b/x-partition-1-sub-DLQ"} {
		require.Equal(t, "a name without -partition-, or with a number after its last dash", WantNumber(name), name)
	}
}

func TestBaseIsTheNameWithoutPartition(t *testing.T) {
	for name, want := range map[string]string{"x-partition-0": "x", "x-partition-12": "x", "x": "x", "x-1": "x-1",
		"x-partition-": "x-partition-", "x-partition-1a": "x-partition-1a", "x-partition--1": "x-partition--1",
		"x-partition-1-partition-2": "x-partition-1", "x-partition-1-s-RETRY": "x-partition-1-s-RETRY",
		"-partition-1": "", "1": "1", "": ""} {
		require.Equal(t, want, Base(name), name)
	}
}

func TestFullNameWithoutADomainIsPersistent(t *testing.T) {
	for name, want := range map[string]string{"x": "persistent://public/default/x", "a/b/x": "persistent://a/b/x",
		"a/us/b/x":               "persistent://a/us/b/x",
		"non-persistent://a/b/x": "non-persistent://a/b/x"} {
		require.Equal(t, want, Full(name))
	}
}
