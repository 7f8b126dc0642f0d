package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// certify returns a certificate for a host, and the file of the authority that signed it.
func certify(t *testing.T, host string, until time.Time) (tls.Certificate, string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	root, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	require.NoError(t, err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host},
		DNSNames: []string{host}, NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter: until}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "authority.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), 0o600))
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}, file
}

// shake starts a listener and returns its address. The listener makes TLS handshakes with config. If config is nil, it
// uses no TLS.
func shake(t *testing.T, config *tls.Config) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if config == nil {
					_, _ = conn.Write([]byte("a broker without TLS"))
				} else if secured := tls.Server(conn, config); secured.Handshake() == nil {
					_, _ = secured.Read(make([]byte, 1))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// The error comes soon. Upstream would try for half a minute, and only log the reason.
func TestErrorSaysWhyTLSFailed(t *testing.T) {
	newBroker(t)
	right, trusted := certify(t, "127.0.0.1", time.Now().Add(time.Hour))
	expired, ofExpired := certify(t, "127.0.0.1", time.Now().Add(-time.Hour))
	elsewhere, ofElsewhere := certify(t, "broker.example", time.Now().Add(time.Hour))
	for want, c := range map[string]struct {
		config *tls.Config
		trust  string
	}{
		"certificate has expired":         {&tls.Config{Certificates: []tls.Certificate{expired}}, ofExpired},
		"cannot validate certificate for": {&tls.Config{Certificates: []tls.Certificate{elsewhere}}, ofElsewhere},
		"signed by unknown authority":     {&tls.Config{Certificates: []tls.Certificate{right}}, ofElsewhere},
		"certificate required": {&tls.Config{Certificates: []tls.Certificate{right},
			ClientAuth: tls.RequireAnyClientCert}, trusted},
		"does not look like a TLS handshake": {nil, trusted},
	} {
		address := "pulsar+ssl://" + shake(t, c.config)
		begin := time.Now()
		for _, args := range [][]string{{"attempts", "-subscription", "billing", "orders"},
			{"dlq", "peek", "orders-billing-DLQ"}, {"dlq", "list", "-all"}} {
			code, _, stderr := command(append(args, "-url", address, "-tls-trust-cert-path", c.trust)...)
			assert.Equal(t, 1, code)
			assert.Contains(t, stderr, "no connection to the broker at "+address+": ")
			assert.Contains(t, stderr, want, args)
		}
		_, stdout, _ := command("doctor", "-subscription", "billing", "orders", "-json", "-url", address,
			"-tls-trust-cert-path", c.trust)
		assert.Contains(t, stdout, want)
		assert.Less(t, time.Since(begin), 2*dialPatience)
	}
}

// The setting in client.conf decides whether a certificate must name the host.
func TestBrokerAndAdminAPIObeyTheSettingOfHostnameVerification(t *testing.T) {
	cert, trusted := certify(t, "broker.example", time.Now().Add(time.Hour))
	address := shake(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	for _, verifies := range []string{"true", "false"} {
		conf := filepath.Join(t.TempDir(), "client.conf")
		require.NoError(t, os.WriteFile(conf,
			[]byte("brokerServiceUrl=pulsar+ssl://"+address+"\nwebServiceUrl=https://"+address+"\ntlsTrustCertsFilePath="+trusted+
				"\ntlsEnableHostnameVerification="+verifies+"\n"), 0o600))
		t.Setenv("PULSAR_URL", "")
		t.Setenv("PULSAR_ADMIN_URL", "")
		t.Setenv("PULSAR_CLIENT_CONF", conf)
		var c connection
		require.NoError(t, c.complete())
		client, _, err := c.connect(slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		defer client.Close()
		if err := c.reach(t.Context()); verifies == "true" {
			require.ErrorContains(t, err, "cannot validate certificate for 127.0.0.1")
		} else {
			require.NoError(t, err)
		}
	}
}
