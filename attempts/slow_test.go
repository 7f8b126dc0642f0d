package attempts

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// slowProducer is a producer whose broker answers late. It calls back as upstream does: from the goroutine that reads
// the connection.
type slowProducer struct {
	pulsar.Producer
	takes time.Duration
}

func (p slowProducer) SendAsync(_ context.Context, msg *pulsar.ProducerMessage,
	answer func(pulsar.MessageID, *pulsar.ProducerMessage, error)) {
	time.Sleep(p.takes)
	answer(pulsar.NewMessageID(1, 1, -1, -1), msg, nil)
}

func TestSlowLogIsReportedWithoutBlockingTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		defer l.end()
		reported, returns := make(chan error, 1), make(chan struct{})
		l.o.Failed = func(err error) {
			reported <- err
			<-returns
		}
		c := &link{producer: slowProducer{takes: slow + time.Second}, underway: make(chan struct{}, maxUnderway)}
		require.NoError(t, l.send(t.Context(), c, &frame{session: l.id}, nil))
		require.ErrorContains(t, <-reported, "took 3s")
		close(returns)
		c.tasks.Wait()
	})
}
