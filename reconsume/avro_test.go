package reconsume_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/reconsume"
)

type tree struct {
	Name   string             `avro:"name"`
	Kind   string             `avro:"kind"`
	Hash   [4]byte            `avro:"hash"`
	Sizes  []int64            `avro:"sizes"`
	Ratios map[string]float64 `avro:"ratios"`
	Ratio  float32            `avro:"ratio"`
	Dead   bool               `avro:"dead"`
	Leaf   *[]byte            `avro:"leaf"`
	Left   *tree              `avro:"left"`
	Right  *tree              `avro:"right"`
}

var trees = pulsar.NewAvroSchema(`{"type":"record","name":"Tree","namespace":"n","fields":[{"name":"name","type":"string"},
	{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["OAK","ELM"]}},{"name":"hash","type":{"type":"fixed","name":"Hash","size":4}},
	{"name":"sizes","type":{"type":"array","items":"long"}},{"name":"ratios","type":{"type":"map","values":"double"}},
	{"name":"ratio","type":"float"},{"name":"dead","type":"boolean"},{"name":"leaf","type":["null","bytes"]},
	{"name":"left","type":["null","Tree"]},{"name":"right","type":["null","Tree"]}]}`, nil)

// What the consumer's schema accounts for to the last byte is published, and nothing else.
func TestAvroValues(t *testing.T) {
	leaf := []byte("leaf")
	small := tree{Name: "", Kind: "ELM"}
	whole, err := trees.Encode(tree{Name: "a", Kind: "OAK", Sizes: make([]int64, 1000), Ratios: map[string]float64{"x": 1, "y": 2},
		Leaf: &leaf, Left: &small, Right: &tree{Kind: "OAK", Left: &small}})
	require.NoError(t, err)
	run(t, reconsume.Options{Schema: trees}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		publish := func(payload []byte) error {
			return r.DeadLetter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{payload: payload}}, nil)
		}
		require.NoError(t, publish(whole))
		require.NoError(t, publish([]byte{}), "a null value")
		for i := range whole[1:] {
			require.ErrorIs(t, publish(whole[:i+1]), reconsume.ErrOtherSchema)
		}
		require.ErrorIs(t, publish(append(slices.Clip(whole), 0)), reconsume.ErrOtherSchema)
		require.Equal(t, 2, acks.acked)
		// hostile: more items than bytes, sizes below 0, unions without end
		start := []byte{0, 0, 1, 2, 3, 4}
		for _, more := range [][]byte{
			{254, 255, 255, 255, 255, 255, 255, 255, 255, 1}, {255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0}, {2},
		} {
			require.ErrorIs(t, publish(append(slices.Clip(start), more...)), reconsume.ErrOtherSchema)
		}
		for range 1000 {
			payload := make([]byte, rand.N(100))
			for i := range payload {
				payload[i] = byte(rand.N(6))
			}
			_ = publish(payload)
		}
	})
}
