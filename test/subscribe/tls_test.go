package subscribe

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// secured is a real broker that requires TLS and a token.
type secured struct {
	url, admin  string
	certificate string // file
	secret      []byte // signs tokens
}

func startSecured(t *testing.T) secured {
	s := secured{secret: make([]byte, 32)}
	_, _ = rand.Read(s.secret)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	s.url = fmt.Sprintf("pulsar+ssl://127.0.0.1:%d", port)
	var key string
	s.certificate, key = certificate(t)
	_, s.admin = testkit.StartPulsar(t, "tls", map[string]string{
		"brokerServicePortTls":    fmt.Sprint(port),
		"tlsCertificateFilePath":  s.certificate,
		"tlsKeyFilePath":          key,
		"tlsTrustCertsFilePath":   s.certificate,
		"authenticationEnabled":   "true",
		"authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
		"tokenSecretKey":          "data:;base64," + base64.StdEncoding.EncodeToString(s.secret),
		"anonymousUserRole":       "anonymous", // the broker's own health check has no token
	})
	return s
}

// certificate writes a self-signed certificate for 127.0.0.1, and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048) // Pulsar 3.0 loads no other kind of key
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, data []byte) string {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		return file
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", private)
}

// token returns a JWT signed by HS256.
func token(secret []byte) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"sub":"tester"}`))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(claims))
	return claims + "." + encode(mac.Sum(nil))
}

// broker returns the broker and a client with a token. patience is the client's OperationTimeout.
func (s secured) broker(t *testing.T, token string, patience time.Duration, log *logtest.Buffer) *testkit.Broker {
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: s.url, TLSTrustCertsFilePath: s.certificate, TLSValidateHostname: true,
		Authentication: pulsar.NewAuthenticationToken(token), OperationTimeout: patience,
		Logger: plog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(log,
			&slog.HandlerOptions{Level: slog.LevelDebug}))),
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &testkit.Broker{T: t, URL: s.url, AdminURL: s.admin, Client: client}
}

func TestRetriesUseTLSAndToken(t *testing.T) {
	if !testkit.HasRealBroker() {
		t.Skip("only with a real broker; set PULSAR_URL and PULSAR_ADMIN_URL")
	}
	t.Parallel()
	s := startSecured(t)

	t.Run("right token", func(t *testing.T) {
		var log logtest.Buffer
		right := token(s.secret)
		b := s.broker(t, right, testkit.Patience, &log)
		topic := b.NewTopic(0)
		c := b.Subscribe(b.RetryOptions(topic, 3), testkit.LogTo(&log),
			redelivery.WithNackRedeliveryDelay(200*time.Millisecond),
			redelivery.WithAckTimeout(600*time.Millisecond))
		b.Send(topic, 1, false)
		msg := testkit.Next(t, c, testkit.Patience)
		due := time.Now().Add(200 * time.Millisecond)
		c.Nack(msg)
		msg = testkit.Next(t, c, testkit.Patience)
		require.False(t, time.Now().Before(due), "early")
		require.EqualValues(t, 1, c.RedeliveryCount(msg))
		msg = testkit.Next(t, c, testkit.Patience) // delivered again after the ack timeout
		require.EqualValues(t, 2, c.RedeliveryCount(msg))
		due = time.Now().Add(300 * time.Millisecond)
		require.NoError(t, c.ReconsumeLaterAfter(context.Background(), msg, 300*time.Millisecond, nil))
		msg = testkit.Next(t, c, testkit.Patience)
		require.False(t, time.Now().Before(due), "early")
		require.Equal(t, testkit.RetryTopic(topic), msg.Topic())
		require.NoError(t, c.Ack(msg))
		b.Settles(topic, 0)
		b.Settles(testkit.RetryTopic(topic), 0)
		c.Close()
		require.NotContains(t, log.String(), right)
	})

	t.Run("wrong token", func(t *testing.T) {
		var log logtest.Buffer
		wrong := token([]byte("somebody else's secret, of 32 bytes"))
		b := s.broker(t, wrong, 3*time.Second, &log)
		_, err := redelivery.Subscribe(b.Client, b.Options(b.NewTopic(0), pulsar.Shared), testkit.LogTo(&log))
		require.Error(t, err)
		require.NotContains(t, fmt.Sprintf("%+v", err), wrong)
		require.Contains(t, log.String(), "Failed to authenticate")
		require.NotContains(t, log.String(), wrong)
	})

	t.Run("unknown certificate", func(t *testing.T) {
		var log logtest.Buffer
		other := s
		other.certificate, _ = certificate(t)
		b := other.broker(t, token(s.secret), 3*time.Second, &log)
		_, err := redelivery.Subscribe(b.Client, b.Options(b.NewTopic(0), pulsar.Shared), testkit.LogTo(&log))
		require.Error(t, err)
		require.Contains(t, log.String(), "certificate signed by unknown authority")
	})
}
