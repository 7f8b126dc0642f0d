package pulsartest

import (
	"math"
	"math/rand"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// randomStream returns either noise, or commands that mostly make sense, of two consumers and two producers. Some of
// these streams have a wrong bit or are cut off.
func randomStream(rnd *rand.Rand) []byte {
	if rnd.Intn(10) == 0 {
		noise := make([]byte, rnd.Intn(200))
		rnd.Read(noise)
		return noise
	}
	out := frames(hello())
	kind := wire.SubType(rnd.Intn(4))
	for i := range uint64(2) {
		topic := string(rune('a' + rnd.Intn(2)))
		out = append(out, frames(&cmdProducer{Topic: topic, Producer: i, TopicEpoch: wire.Absent},
			&cmdSubscribe{Topic: topic, Subscription: "s", SubType: kind, Consumer: i, ForceTopic: true, Durable: true,
				From: startPoint{Position: wire.Earliest}, Epoch: wire.Absent},
			&cmdFlow{Consumer: i, Permits: 100})...)
	}
	for range 1 + rnd.Intn(30) {
		if rnd.Intn(4) == 0 {
			data := wire.Join(randomMetadata(rnd), make([]byte, rnd.Intn(50)))
			out = append(out, sendFrame(&cmdSend{Producer: uint64(rnd.Intn(20) / 9), Messages: 1}, data)...)
		} else {
			out = append(out, frames(randomCommand(rnd))...)
		}
	}
	switch rnd.Intn(4) {
	case 0:
		out[rnd.Intn(len(out))] ^= byte(1 << rnd.Intn(8))
	case 1:
		out = out[:rnd.Intn(len(out))]
	}
	return out
}

func randomMetadata(rnd *rand.Rand) *wire.Metadata {
	m := &wire.Metadata{ProducerName: "p", BatchSize: int32(rnd.Intn(80) - 2),
		Key: wire.Key{Partition: string(rune('a' + rnd.Intn(5)))}}
	switch rnd.Intn(6) {
	case 0:
		m.DeliverAt = time.Now().UnixMilli() + int64(rnd.Intn(3000))
	case 1:
		m.Chunk = wire.Chunk{UUID: "u", Total: 3, ID: int32(rnd.Intn(3))}
	case 2:
		m.Compression, m.Uncompressed = wire.LZ4, uint32(rnd.Intn(1000))
	case 3:
		m.Compression, m.Uncompressed = wire.Zlib, rnd.Uint32()
	}
	return m
}

func randomCommand(rnd *rand.Rand) wire.Command {
	id := func() wire.MessageID {
		id := wire.MessageID{Ledger: uint64(1 + rnd.Intn(3)), Entry: uint64(rnd.Intn(100)), Partition: -1,
			BatchIndex: -1}
		switch rnd.Intn(8) {
		case 0:
			id.Ledger, id.Entry = math.MaxUint64, math.MaxUint64
		case 1:
			id.Ledger, id.Entry = math.MaxInt64, math.MaxInt64
		case 2, 3:
			id.AckSet = []int64{rnd.Int63(), int64(rnd.Intn(4))}[:1+rnd.Intn(2)]
		}
		return id
	}
	ids := func() []wire.MessageID {
		var all []wire.MessageID
		for range rnd.Intn(20) {
			all = append(all, id())
		}
		return all
	}
	topic := []string{"a", "b", "c-partition-0", "persistent://x", "non-persistent://public/default/n", ""}[rnd.Intn(6)]
	who, request := uint64(rnd.Intn(20)/9), rnd.Uint64()
	start := id()
	return []wire.Command{
		&cmdPing{}, &cmdPong{}, &cmdLookup{Topic: topic}, &cmdPartitionedMetadata{Topic: topic},
		&cmdProducer{Topic: topic, Producer: who, Request: request, TopicEpoch: wire.Absent,
			AccessMode: wire.AccessMode(max(rnd.Intn(16)-11, 0))},
		&cmdCloseProducer{Producer: who},
		&cmdSubscribe{Topic: topic, Subscription: "s", SubType: wire.SubType(rnd.Intn(4)), Consumer: who,
			ForceTopic: true,
			Durable:    rnd.Intn(4) > 0, From: startPoint{ID: &start, Position: wire.InitialPosition(rnd.Intn(2))},
			Epoch: wire.Absent,
			KeyShared: &wire.KeySharedMeta{Mode: wire.KeySharedMode(rnd.Intn(2)),
				HashRanges: []wire.IntRange{{Start: int32(rnd.Intn(100)), End: rnd.Int31n(70000)}}}},
		&cmdSubscribe{Topic: topic, Subscription: "s", SubType: wire.Shared, Consumer: who, ForceTopic: true,
			Durable: true},
		&cmdFlow{Consumer: who, Permits: uint32(rnd.Intn(50))}, &cmdFlow{Consumer: who, Permits: rnd.Uint32()},
		&cmdAck{Consumer: who, IDs: ids(), AckType: wire.AckType(rnd.Intn(2)), Request: request},
		&cmdAck{Consumer: who, IDs: ids(), Request: wire.Absent},
		&cmdRedeliver{Consumer: who, IDs: ids(), Epoch: wire.Absent},
		&cmdSeek{Consumer: who, ID: &start}, &cmdSeek{Consumer: who, PublishTime: request},
		&cmdUnsubscribe{Consumer: who, Force: true}, &cmdCloseConsumer{Consumer: who},
		&cmdGetLastMessageID{Consumer: who}, &cmdConsumerStats{Consumer: who},
		&cmdGetTopics{Namespace: "public/default", Pattern: "((a*"}, &cmdGetSchema{Topic: topic},
		&cmdGetOrCreateSchema{Topic: topic, Schema: &wire.Schema{Name: "s"}}, &cmdTransactionsConnect{},
		&cmdAuthResponse{}, &cmdSendReceipt{},
	}[rnd.Intn(25)]
}
