package deadletter_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const keyName = "letters"

// keys returns the keys that makeKeys has made in a folder.
func keys(dir string) (*pulsar.ProducerEncryptionInfo, *pulsar.MessageDecryptionInfo) {
	reader := crypto.NewFileKeyReader(filepath.Join(dir, "public.pem"), filepath.Join(dir, "private.pem"))
	return &pulsar.ProducerEncryptionInfo{KeyReader: reader, Keys: []string{keyName}},
		&pulsar.MessageDecryptionInfo{KeyReader: reader}
}

func makeKeys(t testing.TB) (dir string) {
	dir = t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"public.pem":  {Type: "PUBLIC KEY", Bytes: public},
		"private.pem": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return dir
}

type order struct {
	ID   int64
	Note string
}

const orderSchema = `{"type":"record","name":"order","fields":[{"name":"ID","type":"long"},{"name":"Note","type":"string"}]}`

// mixed publishes n letters with the numbers from, from+1 and so on: in batches, single, in chunks, with an Avro
// schema, encrypted, and encrypted in chunks. All have keys, and the letters of a key are in order.
func (b *broker) mixed(tp topics, keyDir string, from, n int) []*pulsar.ProducerMessage {
	encryption, _ := keys(keyDir)
	avro := pulsar.NewAvroSchema(orderSchema, nil)
	kinds := []struct {
		o     pulsar.ProducerOptions
		batch int
		size  int
	}{
		{pulsar.ProducerOptions{}, 100, 50},
		{pulsar.ProducerOptions{}, 1, 50},
		{pulsar.ProducerOptions{EnableChunking: true, ChunkMaxMessageSize: 1500}, 1, 4000},
		{pulsar.ProducerOptions{Schema: avro}, 50, 0},
		{pulsar.ProducerOptions{Encryption: encryption}, 20, 50},
		{pulsar.ProducerOptions{Encryption: encryption, EnableChunking: true, ChunkMaxMessageSize: 2000}, 1, 4000},
	}
	var all []*pulsar.ProducerMessage
	for round := 0; len(all) < n; round++ {
		kind := kinds[round%len(kinds)]
		var msgs []*pulsar.ProducerMessage
		for range min(n/20, n-len(all)) {
			i := from + len(all) + len(msgs)
			l := tp.letter(i)
			l.Key = fmt.Sprint("key ", mathrand.IntN(30))
			if kind.size == 0 {
				payload, err := avro.Encode(order{int64(i), "avro"})
				require.NoError(b.t, err)
				l.Payload = payload
			} else {
				l.Payload = make([]byte, kind.size)
				_, _ = rand.Read(l.Payload)
			}
			msgs = append(msgs, l)
		}
		kind.o.Topic = tp.dlq
		b.publish(kind.o, kind.batch, msgs...)
		all = append(all, msgs...)
	}
	return all
}

// buildTool builds the command redelivery.
func buildTool(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "redelivery")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/redelivery").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func (b *broker) command(tool string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(tool, append([]string{"dlq"}, args...)...)
	cmd.Env = append(os.Environ(), "PULSAR_URL="+b.url, "PULSAR_ADMIN_URL="+b.admin)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// The processes replay letters of every kind, and are killed or interrupted at random moments. In the end every letter
// is replayed, and the letters of each key are in order. DEADLETTER_KILLS is the number of kills; a run with 100 has
// passed.
func TestKilledReplaysLoseNoLetter(t *testing.T) {
	for name, c := range map[string]struct {
		signal       os.Signal
		deduplicated bool
	}{
		"killed, deduplicated":     {os.Kill, true},
		"killed, not deduplicated": {os.Kill, false},
		"interrupted":              {os.Interrupt, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := real(t)
			if c.deduplicated {
				b.deduplicate()
			}
			most, err := strconv.Atoi(cmp.Or(os.Getenv("DEADLETTER_KILLS"), "8"))
			require.NoError(t, err)
			const n = 10_000 // letters published at a time
			tp := b.topics(2)
			b.callAdmin("POST", tp.retry+"/partitions", 3, nil)
			dir := makeKeys(t)
			sent := b.mixed(tp, dir, 0, n)
			tool := buildTool(t)
			replay := func() (*exec.Cmd, *bytes.Buffer) {
				return b.command(tool, "replay", tp.dlq, "-yes", "-json", "-encryption-key-name", keyName,
					"-encryption-public-key", filepath.Join(dir, "public.pem"), "-encryption-private-key",
					filepath.Join(dir, "private.pem"))
			}
			kills := 0
			begin := time.Now()
			for kills < most {
				cmd, out := replay()
				require.NoError(t, cmd.Start())
				alarm := time.AfterFunc(time.Duration(50+mathrand.IntN(700))*time.Millisecond,
					func() { _ = cmd.Process.Signal(c.signal) })
				err := cmd.Wait()
				if alarm.Stop() { // the replay ended before the signal
					require.NoError(t, err, out.String())
					sent = append(sent, b.mixed(tp, dir, len(sent), n)...)
					continue
				}
				kills++
			}
			for range 2 { // the second replay is for the letters that came after the first one had begun
				cmd, out := replay()
				require.NoError(t, cmd.Run(), out.String())
			}
			t.Logf("%d letters, %d kills, %v", len(sent), kills, time.Since(begin))

			_, decryption := keys(dir)
			consumer, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: tp.retry, SubscriptionName: sub,
				Type: pulsar.Shared, AckWithResponse: false, Decryption: decryption})
			require.NoError(t, err)
			defer consumer.Close()
			times := make([]int, len(sent))
			last := map[string]int{}
			doubles := 0
			for {
				ctx, cancel := context.WithTimeout(bg, 3*time.Second)
				msg, err := consumer.Receive(ctx)
				cancel()
				if err != nil {
					break
				}
				require.NoError(t, consumer.Ack(msg))
				i, err := strconv.Atoi(msg.Properties()["number"])
				require.NoError(t, err)
				times[i]++
				if times[i] > 1 {
					doubles++
					continue
				}
				require.True(t, bytes.Equal(sent[i].Payload, msg.Payload()), "letter %d", i)
				require.Equal(t, sent[i].Key, msg.Key())
				before, ok := last[msg.Key()]
				require.True(t, !ok || before < i, "%s: %d after %d", msg.Key(), i, before)
				last[msg.Key()] = i
				if len(sent[i].Payload) < 50 {
					require.NotEmpty(t, msg.SchemaVersion())
				}
			}
			for i, k := range times {
				require.NotZero(t, k, "letter %d is lost", i)
			}
			t.Logf("%d doubles", doubles)
			if c.deduplicated || c.signal == os.Interrupt {
				assert.Zero(t, doubles)
			}
			assert.Zero(t, b.backlog(tp.dlq, own))
		})
	}
}
