package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// broker creates topics and publishes messages in this process, so that a worker's CPU time is that of its consumer
// alone.
type broker struct {
	url, admin string
	client     pulsar.Client
}

func connect(url, admin string) (*broker, error) {
	if url == "" || admin == "" {
		return nil, fmt.Errorf(`PULSAR_URL and PULSAR_ADMIN_URL are not set; start a broker: eval "$(../test/scripts/pulsar start)"`)
	}
	quiet := plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: quiet})
	if err != nil {
		return nil, err
	}
	return &broker{url, admin, client}, nil
}

// topic creates a topic with the given number of partitions, or an unpartitioned topic if that number is 0.
func (b *broker) topic(partitions int) (string, error) {
	name := fmt.Sprintf("persistent://public/default/benchmark-%08x", rand.Uint32())
	if partitions > 0 {
		return name, b.callAdmin(http.MethodPut, name+"/partitions", partitions)
	}
	return name, b.callAdmin(http.MethodPut, name, nil)
}

func (b *broker) delete(topic string, partitions int) error {
	if partitions > 0 {
		return b.callAdmin(http.MethodDelete, topic+"/partitions?force=true", nil)
	}
	return b.callAdmin(http.MethodDelete, topic+"?force=true", nil)
}

func (b *broker) callAdmin(method, path string, body any) error {
	return admin.Call(context.Background(), b.admin, method, path, body, nil)
}

// publish sends the payloads "0" … "n-1", in batches of batchSize if batchSize is over 1. If every is over 0, one
// message is sent in each such period.
func (b *broker) publish(topic string, n, batchSize int, every time.Duration) error {
	opts := pulsar.ProducerOptions{Topic: topic, DisableBatching: batchSize <= 1, MaxPendingMessages: 5000}
	if batchSize > 1 {
		opts.BatchingMaxMessages, opts.BatchingMaxPublishDelay = uint(batchSize), time.Second
		opts.BatchingMaxSize = 1 << 20
	}
	producer, err := b.client.CreateProducer(opts)
	if err != nil {
		return err
	}
	defer producer.Close()
	var failed atomic.Pointer[error]
	begin := time.Now()
	for i := range n {
		if every > 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * every)))
		}
		msg := &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(i))}
		producer.SendAsync(context.Background(), msg, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := producer.FlushWithCtx(context.Background()); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
