package ui_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/ui"
)

var waitingOf = "waiting?" + url.Values{"topic": {origin}, "subscription": {"billing"}}.Encode()

// logFailures writes a log of attempts in which the messages with these entries failed.
func (s *site) logFailures(entries ...int64) *attempts.Log {
	log, err := attempts.Open(s.client, attempts.Options{Topic: attempts.Topic(origin, "billing"),
		Logger: logtest.Logger(s.t)})
	require.NoError(s.t, err)
	s.t.Cleanup(log.Close)
	require.NoError(s.t, log.Ready(waittest.Context(s.t)))
	for _, entry := range entries {
		log.Failed(keyOf(entry), uint32(entry), time.Hour, "no such warehouse")
	}
	require.NoError(s.t, log.Flush(waittest.Context(s.t)))
	return log
}

func keyOf(entry int64) attempts.Key { return attempts.Key{Topic: origin, Ledger: 3, Entry: entry} }

func TestTickedMessagesAreForgotten(t *testing.T) {
	s := newSite(t, nil)
	s.subscribe(origin, "billing")
	log := s.logFailures(5, 6, 7)
	body := s.await(waitingOf, "3 failed messages")
	require.Contains(t, body, "no such warehouse")
	form := url.Values{"topic": {origin}, "subscription": {"billing"}, "action": {"forget"},
		"key": {keyOf(5).String(), keyOf(7).String()}}
	status, plan := s.post(waitingOf, "plan", form)
	require.Equal(t, http.StatusOK, status, plan)
	require.Contains(t, plan, "Forget 2 messages of orders?")
	require.Len(t, log.Records(), 3, "messages were forgotten before the second click")
	job := s.confirm(waitingOf, plan)
	s.await(regexp.MustCompile(`job\?id=\w+`).FindString(job+s.await("letters", "Forget 2 messages")), "Done: 2 of 2")
	require.Eventually(t, func() bool { return len(log.Records()) == 1 }, waittest.Limit, time.Millisecond)
	require.Equal(t, keyOf(6), log.Records()[0].Key)
	s.await(waitingOf, "1 failed message<")
	require.Contains(t, s.log.String(), `action=forget topic=persistent://public/default/orders`)

	status, body = s.post(waitingOf, "plan", form)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "The log has none of the ticked messages any more")
	form.Set("key", keyOf(6).String())
	_, plan = s.post(waitingOf, "plan", form)
	require.Contains(t, plan, "redelivery attempts -subscription billing -forget 3:6:0 orders")
}

func TestForgetOfUnknownSubscriptionChangesNothing(t *testing.T) {
	s := newSite(t, nil)
	s.subscribe(origin, "billing")
	log := s.logFailures(5)
	s.await(waitingOf, "1 failed message")
	for _, of := range []url.Values{{"topic": {origin}, "subscription": {"other"}},
		{"topic": {dead}, "subscription": {"billing"}}, {}} {
		of.Set("action", "forget")
		of.Set("key", keyOf(5).String())
		status, body := s.post(waitingOf, "plan", of)
		require.Equal(t, http.StatusNotFound, status)
		require.Contains(t, body, "Nothing was changed")
	}
	require.Len(t, log.Records(), 1)
}

// service returns a consumer of this process that has failed on two messages. Its log has a topic of its own.
func (s *site) service() *redelivery.Consumer {
	c, err := redelivery.Subscribe(s.client,
		pulsar.ConsumerOptions{Topic: origin, SubscriptionName: "billing", Type: pulsar.Shared},
		redelivery.WithNackRedeliveryBackoff(backoff.Fixed(time.Hour)), redelivery.WithLogger(logtest.Logger(s.t)),
		redelivery.WithAttemptLog(redelivery.AttemptLog{Topic: "persistent://public/default/log"}))
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	s.broker.Publish(s.t, origin, &pulsar.ProducerMessage{Payload: []byte("one")},
		&pulsar.ProducerMessage{Payload: []byte("two")})
	for range 2 {
		msg, err := c.Receive(waittest.Context(s.t))
		require.NoError(s.t, err)
		c.NackWithReason(msg, errors.New("no such warehouse"))
	}
	return c
}

func TestForgetUsesTheLogOfAConsumerOfThisProcess(t *testing.T) {
	s := newSite(t, nil)
	c := s.service()
	s.open(func(o *ui.Options) { o.Services = []ui.Service{{Consumer: c}} })
	s.await(waitingOf, "2 failed messages")
	_, plan := s.post(waitingOf, "plan", url.Values{"topic": {origin}, "subscription": {"billing"},
		"action": {"forget"}, "key": {c.AttemptLog().Records()[0].Key.String()}})
	s.confirm(waitingOf, plan)
	require.Eventually(t, func() bool { return len(c.AttemptLog().Records()) == 1 }, waittest.Limit, time.Millisecond)
}

func TestRedeliverNowDeliversWaitingMessagesOfThisProcess(t *testing.T) {
	s := newSite(t, nil)
	c := s.service()
	s.open(func(o *ui.Options) { o.Services = []ui.Service{{Consumer: c}} })
	s.await(waitingOf, "2 messages wait in this process")
	form := url.Values{"topic": {origin}, "subscription": {"billing"}, "action": {"redeliver"}}
	_, plan := s.post(waitingOf, "plan", form)
	require.Contains(t, plan, "Redeliver 2 messages of orders now?")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Receive(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a message was redelivered before the second click")
	s.confirm(waitingOf, plan)
	for range 2 {
		msg, err := c.Receive(waittest.Context(t))
		require.NoError(t, err)
		require.NoError(t, c.Ack(msg))
	}
	status, body := s.post(waitingOf, "plan", form)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "No message waits for its delay")
	require.Contains(t, s.log.String(), "action=redeliver")
}
