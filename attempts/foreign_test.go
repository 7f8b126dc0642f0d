package attempts

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/require"
)

// oneKey reads the same pair of keys for every name.
type oneKey struct{ public, private []byte }

func (k oneKey) PublicKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.public, meta), nil
}

func (k oneKey) PrivateKey(name string, meta map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.private, meta), nil
}

func newKey(t *testing.T) oneKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	return oneKey{pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})}
}

// The message was published before the Log opened, or later. Without a Decryption option, pulsar-client-go would end
// the process.
func TestEncryptedMessageIsSkipped(t *testing.T) {
	t.Parallel()
	client, topic := testClient(t), testTopic(t)
	a := openReady(t, client, topic, "a")
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true,
		Encryption: &pulsar.ProducerEncryptionInfo{KeyReader: newKey(t), Keys: []string{"k"}}})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(t.Context(), &pulsar.ProducerMessage{Payload: []byte("x")})
	require.NoError(t, err)
	a.Failed(one, 1, time.Hour, "")
	require.NoError(t, a.Flush(t.Context()))
	_, err = p.Send(t.Context(), &pulsar.ProducerMessage{Payload: []byte("x")})
	require.NoError(t, err)
	b := openReady(t, client, topic, "b")
	_, ok := b.Find(one)
	require.True(t, ok)
}

// A frame may name a checkpoint beyond itself, for example if it was copied from another cluster. No reader would ever
// reach that checkpoint.
func TestCheckpointBeyondTheLogIsIgnored(t *testing.T) {
	client, topic := testClient(t), testTopic(t)
	a := openReady(t, client, topic, "a")
	a.Failed(one, 1, time.Hour, "")
	require.NoError(t, a.Flush(t.Context()))
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(t.Context(), &pulsar.ProducerMessage{Payload: (&frame{session: 7, number: 1,
		checkpoint: position{1 << 60, 0}}).encode()})
	require.NoError(t, err)
	for _, name := range []string{"first session after the frame", "second session after the frame"} {
		b := openReady(t, client, topic, name)
		_, ok := b.Find(one)
		require.True(t, ok, name)
	}
}

// The log has no record of such a message, so there is nothing to remove.
func TestMessageSettledWhileTheLogIsAwayTakesNoMemory(t *testing.T) {
	topic := testTopic(t)
	l, err := Open(awayClient{}, Options{Topic: topic})
	require.NoError(t, err)
	defer l.Close()
	const n = 50_000
	for entry := range int64(n) {
		k := Key{one.Topic, 1, entry, 0}
		l.Failed(k, 1, time.Hour, "")
		if entry%1000 > 0 {
			l.Settled(k)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Len(t, l.own.byPlace, n/1000)
	require.Less(t, len(l.own.unsent), 1200)
}

// awayClient is a client that reaches no broker.
type awayClient struct{ pulsar.Client }

func (awayClient) TopicPartitions(string) ([]string, error) { return nil, errors.New("no broker") }

func TestOpenRefusesARetentionWithoutAUnit(t *testing.T) {
	for retention, want := range map[time.Duration]string{-1: "-1ns, want 0 or more", 24: "24ns, want 1ms or more"} {
		_, err := Open(awayClient{}, Options{Topic: "log", Retention: retention})
		require.ErrorContains(t, err, "attempts: Retention is "+want)
	}
}
