package main

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHostsOfAnAddressHaveDefaultPorts(t *testing.T) {
	for address, want := range map[string][]string{
		"pulsar://a":               {"a:6650"},
		"pulsar+ssl://a":           {"a:6651"},
		"pulsar://a:1,b,c:3":       {"a:1", "b:6650", "c:3"},
		"pulsar://[::1]:1,[::2]/x": {"[::1]:1", "[::2]:6650"},
		"http://a/":                {"a:80"},
	} {
		assert.Equal(t, want, brokers.hosts(address), address)
	}
}

// The error also names the address.
func TestErrorAboutABadAddressNamesWhereItWasSet(t *testing.T) {
	t.Setenv("PULSAR_URL", "localhost:6650")
	code, _, stderr := dlqRun("", "peek", "a")
	assert.Equal(t, 1, code)
	assert.Equal(t, "redelivery dlq: PULSAR_URL is \"localhost:6650\", want pulsar://host:6650 or "+
		"pulsar+ssl://host:6651\n", stderr)
}

// Brokers do not serve below a path. Slashes at the end, and blanks around the address, are allowed.
func TestPathAfterTheHostIsRefused(t *testing.T) {
	server := inProcess(t)
	const refused = "\", want http://host:8080 or https://host:8443"
	for after, said := range map[string]string{"": "", "/": "", "//": "", " ": "", "/\t": "", "/admin/v2": refused,
		"//admin": refused,
		"?x=1":    refused, "/?x=1": refused, "#a": refused, "/ /": refused} {
		t.Setenv("PULSAR_ADMIN_URL", " "+server.AdminURL()+after)
		code, _, stderr := dlqRun("", "list")
		if said == "" {
			assert.Zero(t, code, "%q: %s", after, stderr)
			continue
		}
		assert.Equal(t, 1, code, after)
		assert.Equal(t, "redelivery dlq: PULSAR_ADMIN_URL is \""+server.AdminURL()+after+said+"\n", stderr, after)
	}
}

// The error comes soon.
func TestErrorNamesABrokerThatCannotBeReached(t *testing.T) {
	newBroker(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := "pulsar://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	begin := time.Now()
	code, _, stderr := dlqRun("", "peek", "orders-billing-DLQ", "-url", address)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "no connection to the broker at "+address+": dial tcp ")
	assert.Less(t, time.Since(begin), 2*dialPatience)
	code, _, stderr = dlqRun("", "list", "-url", address)
	assert.Zero(t, code, "list failed without the broker, although it needs only the admin API: %s", stderr)
	begin = time.Now()
	code, _, stderr = command("attempts", "-subscription", "billing", "orders", "-url", address)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "no connection to the broker at "+address+": dial tcp ")
	assert.Less(t, time.Since(begin), 2*dialPatience)

	code, _, stderr = command("attempts", "-subscription", "billing", "orders", "-admin-url",
		"http://"+listener.Addr().String())
	assert.Equal(t, 1, code, "the command went on without an answer of the admin API, and may create the log")
	assert.Contains(t, stderr, "connection refused")

	both := "http://" + listener.Addr().String() + "," + strings.TrimPrefix(os.Getenv("PULSAR_ADMIN_URL"), "http://")
	_, _, stderr = command("attempts", "-subscription", "billing", "orders", "-admin-url", both)
	assert.Contains(t, stderr, "there is no log", "the command did not ask the second address, which answers")
	_, stdout, stderr := command("doctor", "-subscription", "billing", "orders", "-admin-url", both)
	assert.Contains(t, stdout, "the broker and its admin API answer", stderr)

	c := connection{url: address}
	require.NoError(t, c.withAddress(nil))
	require.EqualError(t, c.withAddress(errors.New("connection error")),
		"no connection to the broker at "+address+": connection error")
	require.EqualError(t, c.withAddress(errors.New("other")), "other")
}
