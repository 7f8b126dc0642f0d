package ui_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/ui"
)

var letterID = regexp.MustCompile(`name="id" value="([\d:]+)"`)

// letterPage returns the page of the only letter, and the letter's ID.
func (s *site) letterPage() (page, id string) {
	s.t.Helper()
	list := s.await("group?topic="+url.QueryEscape(dead), `name="id"`)
	id = letterID.FindStringSubmatch(list)[1]
	return "letter?topic=" + url.QueryEscape(dead) + "&id=" + id, id
}

func TestEditedLetterIsReplayedAndExported(t *testing.T) {
	dir := t.TempDir()
	s := newSite(t, func(o *ui.Options) { o.ExportDir = dir })
	s.storeLetters(1, 1)
	page, id := s.letterPage()
	_, body := s.get(page)
	require.Contains(t, body, `spellcheck="false" dir="ltr">`+"\n{\n")
	edit := func(text string) (int, string) {
		return s.post(page, "plan", url.Values{"topic": {dead}, "id": {id}, "action": {"edit"}, "payload": {text}})
	}
	for text, want := range map[string]string{"{": "the text is not JSON",
		"{\r\n\"order\": 1000, \"total\": \"0.90\"}": "the payload is as before"} {
		status, body := edit(text)
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, body, want)
		require.Contains(t, body, "Nothing was changed")
	}
	_, plan := edit("{\r\n  \"order\": 1000,\r\n  \"total\": \"9.90\"\r\n}")
	require.Contains(t, plan, "Replay as edited 1 letter to orders-billing-RETRY?")
	require.Contains(t, plan, "&#34;9.90&#34;")
	require.Zero(t, s.broker.Subscription(retry, "billing").Backlog, "the letter was replayed before the second click")

	c, err := s.client.Subscribe(pulsar.ConsumerOptions{Topic: retry, SubscriptionName: "billing", Type: pulsar.Shared})
	require.NoError(t, err)
	defer c.Close()
	s.confirm(page, plan)
	msg, err := c.Receive(waittest.Context(t))
	require.NoError(t, err)
	require.JSONEq(t, `{"order": 1000, "total": "9.90"}`, string(msg.Payload()))
	require.NotContains(t, string(msg.Payload()), "\n")
	require.Equal(t, "redelivery ui, from 127.0.0.1", msg.Properties()[deadletter.PropertyEditedBy])
	require.NoError(t, c.Ack(msg))
	s.await("letters", "done")
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	exported, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(exported), `"id":"`+id+`"`)
	require.Contains(t, s.log.String(), `action=edit`)
	_, second := s.post(waitingOf, "do", url.Values{"plan": {planID.FindStringSubmatch(plan)[1]}})
	require.Contains(t, second, "confirmed already")
}

func TestPayloadThatAPageCannotHoldIsNotEdited(t *testing.T) {
	for payload, want := range map[string]string{
		"\xff\x00":                  "is neither text, JSON nor Avro",
		"one\r\ntwo":                "has characters that a page cannot hold",
		"\u202Etxt":                 "has characters that a page cannot hold",
		strings.Repeat("x", 70_000): "is too large for a page",
	} {
		s := newSite(t, nil)
		s.subscribe(origin, "billing")
		s.subscribe(dead, "inspect")
		s.broker.Publish(t, dead, &pulsar.ProducerMessage{Payload: []byte(payload)})
		page, id := s.letterPage()
		_, body := s.get(page)
		require.Contains(t, body, want)
		require.NotContains(t, body, "<textarea")
		status, body := s.post(page, "plan",
			url.Values{"topic": {dead}, "id": {id}, "action": {"edit"}, "payload": {"y"}})
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, body, want)
	}
}

func TestHiddenPayloadIsNotEdited(t *testing.T) {
	s := newSite(t, func(o *ui.Options) { o.HidePayloads = true })
	s.storeLetters(1, 1)
	page, id := s.letterPage()
	_, body := s.get(page)
	require.NotContains(t, body, "<textarea")
	status, body := s.post(page, "plan", url.Values{"topic": {dead}, "id": {id}, "action": {"edit"}, "payload": {"{}"}})
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "the payload is hidden")
}

func TestLetterShowsItsDeliveriesFromTheLog(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(1, 1) // the letter was message 7:0
	page, _ := s.letterPage()
	_, body := s.get(page + "&attempts=1")
	require.Contains(t, body, "There is no log of attempts of orders / billing")
	log, err := attempts.Open(s.client, attempts.Options{Topic: attempts.Topic(origin, "billing"), Name: "host-1/42",
		Logger: logtest.Logger(t)})
	require.NoError(t, err)
	t.Cleanup(log.Close)
	key := attempts.Key{Topic: origin, Ledger: 7}
	for n, cause := range []string{"no <b>milk", "no sugar"} {
		log.Failed(key, uint32(n+1), time.Duration(n+1)*time.Minute, cause)
		require.NoError(t, log.Flush(waittest.Context(t)))
	}
	require.NoError(t, log.Forget(context.Background(), key))
	_, body = s.get(page + "&attempts=1")
	require.Contains(t, body, "delivery 1 failed at host-1/42: no &lt;b&gt;milk, next after 1m")
	require.Contains(t, body, "delivery 2 failed at host-1/42: no sugar, next after 2m")
	require.Contains(t, body, "settled, or forgotten")
}
