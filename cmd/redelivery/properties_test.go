package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// conf writes a client.conf and makes the tool use it.
func conf(t *testing.T, lines ...string) string {
	path := filepath.Join(t.TempDir(), "client.conf")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	for _, name := range []string{"PULSAR_URL", "PULSAR_ADMIN_URL", "PULSAR_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("PULSAR_CLIENT_CONF", path)
	return path
}

// client.conf is a Java properties file.
func TestClientConfMayUseEverySpellingOfPropertiesFiles(t *testing.T) {
	for _, line := range []string{
		"brokerServiceUrl=pulsar://localhost:1", "brokerServiceUrl = pulsar://localhost:1",
		"brokerServiceUrl: pulsar://localhost:1", "brokerServiceUrl : pulsar://localhost:1",
		"brokerServiceUrl pulsar://localhost:1", "\tbrokerServiceUrl\tpulsar://localhost:1",
		`brokerServiceUrl=pulsar\://localhost\:1`, "brokerServiceUrl=\\\n  pulsar://\\\n  localhost:1",
		"#brokerServiceUrl=x\\\nbrokerServiceUrl=pulsar://localhost:1",
		"! a comment\r\nbrokerServiceUrl=pulsar://localhost:1\r\n",
		`broker\u0053erviceUrl=pulsar://\u006cocalhost:1`,
	} {
		conf(t, line)
		c := connection{}
		require.NoError(t, c.complete(), line)
		assert.Equal(t, "pulsar://localhost:1", c.url, line)
	}
	path := conf(t, "", `a=\u00`)
	require.EqualError(t, (&connection{}).complete(), path+`:2: \u is not followed by four hexadecimal digits`)
}

// The tool does not use localhost instead.
func TestMistakeInClientConfIsAnError(t *testing.T) {
	for line, want := range map[string]string{
		"brokerServiceUrl=a:6650":               `brokerServiceUrl of PATH is "a:6650", want pulsar://host:6650`,
		"brokerServiceURL=pulsar://localhost:1": `PATH has brokerServiceURL, want brokerServiceUrl`,
		"webserviceurl=http://a:1":              `PATH has webserviceurl, want webServiceUrl`,
		"tlsAllowInsecureConnection=yes":        `tlsAllowInsecureConnection of PATH is "yes", want true or false`,
		"tlsEnableHostnameVerification=on":      `tlsEnableHostnameVerification of PATH is "on", want true or false`,
		"webServiceUrl=http://a:1,https://b":    `webServiceUrl of PATH is "http://a:1,https://b", want http://host:8080`,
	} {
		path := conf(t, line)
		err := (&connection{}).complete()
		require.Error(t, err, line)
		require.Contains(t, strings.ReplaceAll(err.Error(), path, "PATH"), want)
	}
	conf(t, "tlsEnableHostnameVerification=TRUE", "tlsAllowInsecureConnection=False", "somebodyElses=1")
	c := connection{}
	require.NoError(t, c.complete())
	require.True(t, c.verifyHost)
	require.False(t, c.insecure)
}

func TestFirstAdminAddressThatAcceptsAConnectionIsUsed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	conf(t, "webServiceUrl=http://127.0.0.1:1,"+host+",127.0.0.1:2/")
	code, stdout, stderr := dlqRun("", "list")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "No topic")
	conf(t, "webServiceUrl=http://127.0.0.1:1,127.0.0.1:2")
	code, _, stderr = dlqRun("", "list")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no connection to the admin API at http://127.0.0.1:1,127.0.0.1:2")
}

// The client.conf that Pulsar ships allows such a certificate. The issuer is always verified.
func TestCertificateForAnotherHostIsAcceptedOnlyIfClientConfAllowsIt(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte("[]"))
	}))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	url := "webServiceUrl=https://localhost:" + port // the certificate is for 127.0.0.1 and example.com
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pemOf(server.Certificate().Raw), 0o600))
	for name, c := range map[string]struct {
		lines []string
		code  int
	}{
		"not said":  {[]string{url, "tlsTrustCertsFilePath=" + ca}, 1},
		"verified":  {[]string{url, "tlsTrustCertsFilePath=" + ca, "tlsEnableHostnameVerification=true"}, 1},
		"not":       {[]string{url, "tlsTrustCertsFilePath=" + ca, "tlsEnableHostnameVerification=false"}, 0},
		"no issuer": {[]string{url, "tlsEnableHostnameVerification=false"}, 1},
	} {
		conf(t, c.lines...)
		code, _, stderr := dlqRun("", "list")
		assert.Equal(t, c.code, code, "%s: %s", name, stderr)
	}
}

func pemOf(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}
