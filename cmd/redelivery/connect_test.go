package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

func TestConnectionCompletesUnsetFlags(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "client.conf")
	require.NoError(t, os.WriteFile(conf,
		[]byte("# Pulsar's own\nwebServiceUrl = https://a:1\nbrokerServiceUrl=pulsar+ssl://a:2\n"+
			"authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken\nauthParams=token:abc=\ntlsAllowInsecureConnection=true\n"+
			"tlsTrustCertsFilePath=\n"), 0o600))
	for _, name := range []string{"PULSAR_URL", "PULSAR_ADMIN_URL", "PULSAR_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("PULSAR_CLIENT_CONF", conf)
	c := connection{adminURL: "http://flag"}
	require.NoError(t, c.complete())
	assert.Equal(t, connection{url: "pulsar+ssl://a:2", adminURL: "http://flag", insecure: true,
		authPlugin: "org.apache.pulsar.client.impl.auth.AuthenticationToken", authParams: "token:abc="}, c)
	t.Setenv("PULSAR_URL", "pulsar://env")
	c = connection{}
	require.NoError(t, c.complete())
	assert.Equal(t, "pulsar://env", c.url)
	assert.Equal(t, "https://a:1", c.adminURL)
	t.Setenv("PULSAR_CLIENT_CONF", conf+"-none")
	require.ErrorIs(t, (&connection{}).complete(), os.ErrNotExist)
	os.Unsetenv("PULSAR_CLIENT_CONF")
	// the admin API does not default to this computer if the broker is on another one
	require.ErrorContains(t, (&connection{}).complete(),
		"the broker is pulsar://env and its admin API is not given, want -admin-url")
	t.Setenv("PULSAR_URL", "")
	require.ErrorContains(t, (&connection{adminURL: "http://b"}).complete(),
		"the admin API is http://b and its broker is not given, want -url")
	require.NoError(t, (&connection{adminURL: "http://b", adminAlone: true}).complete())
	t.Setenv("PULSAR_URL", "pulsar://127.0.0.1:7000")
	c = connection{}
	require.NoError(t, c.complete())
	assert.Equal(t, "http://localhost:8080", c.adminURL)
}

func TestAdminAPIGetsTheCredentialsOfTheBroker(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("from-file\n"), 0o600))
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization")
		_, _ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	const java = "org.apache.pulsar.client.impl.auth.Authentication"
	for params, c := range map[string]struct{ plugin, want string }{
		"token:abc":                           {java + "Token", "Bearer abc"},
		"abc":                                 {"token", "Bearer abc"},
		"file://" + token:                     {java + "Token", "Bearer from-file"},
		`{"token":"json"}`:                    {"token", "Bearer json"},
		"user:pass":                           {"basic", "Basic dXNlcjpwYXNz"},
		`{"userId":"user","password":"pass"}`: {java + "Basic", "Basic dXNlcjpwYXNz"},
	} {
		code, _, stderr := dlqRun("", "list", "-admin-url", server.URL, "-auth-plugin", c.plugin, "-auth-params",
			params)
		assert.Zero(t, code, stderr)
		assert.Equal(t, c.want, asked, params)
	}
	code, _, stderr := dlqRun("", "list", "-admin-url", server.URL, "-auth-plugin", "token", "-auth-params",
		`{"secret": 1`)
	assert.Equal(t, 1, code)
	assert.NotContains(t, stderr, "secret")
}

// The command must not wait again with each call of the API.
func TestCommandWaitsOnceForASilentAdminAPI(t *testing.T) {
	newBroker(t)
	patience := admin.Patience
	defer func() { admin.Patience = patience }()
	admin.Patience = 300 * time.Millisecond
	var asked atomic.Int32
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	defer silent.Close()
	t.Setenv("PULSAR_ADMIN_URL", silent.URL)
	for _, args := range [][]string{{"replay", "-yes"}, {"purge", "-no-export", "-yes"},
		{"import", "-i", os.Args[0], "-yes"}, {"groups"}, {"peek"}} {
		asked.Store(0)
		code, _, stderr := dlqRun("", append(args, "orders-billing-DLQ")...)
		require.Equal(t, 1, code, "%q", args)
		require.Contains(t, stderr, "did not answer within 300ms", "%q", args)
		require.EqualValues(t, 1, asked.Load(), "%q", args)
	}
}
