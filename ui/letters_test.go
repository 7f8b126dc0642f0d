package ui_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Before the replay, the user looks at the groups and at a letter.
func TestReplayOfGroupIsShownUntilItIsDone(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(120, 3)
	s.await("", "orders")
	page := groupsOf(dead)
	body := s.await(page, "120 letters")
	require.Contains(t, body, "cause A of order &lt;n&gt;")
	require.Contains(t, body, "redelivery dlq groups orders-billing-DLQ")
	group := groupLink.FindStringSubmatch(body)[1]

	list := "group?topic=" + url.QueryEscape(dead) + "&group=" + group
	body = s.await(list, "40 letters")
	require.Contains(t, body, "customer-")
	id := regexp.MustCompile(`value="(\d+:\d+:\d+:\d+)"`).FindStringSubmatch(body)[1]
	status, body := s.get("letter?topic=" + url.QueryEscape(dead) + "&id=" + id)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "&#34;order&#34;: 10")
	require.Contains(t, body, "died on subscription billing")
	require.Contains(t, body, "replay orders-billing-DLQ -id "+id)

	status, plan := s.post(list, "plan",
		url.Values{"topic": {dead}, "group": {group}, "action": {"replay"}, "rate": {"1000"}})
	require.Equal(t, http.StatusOK, status, plan)
	require.Contains(t, plan, "Replay 40 letters to orders-billing-RETRY?")
	require.Contains(t, plan, "Subscription billing of orders-billing-RETRY has no consumer now")
	require.Zero(t, s.broker.Subscription(retry, "billing").Backlog)
	body = s.confirm(list, plan)
	job := regexp.MustCompile(`name="id" value="(\w+)"|Done: 40`).FindStringSubmatch(body)
	require.NotNil(t, job, body)
	s.await(page, "80 letters")
	s.broker.Await(t, retry, "billing", waittest.Limit,
		func(sub pulsartest.Subscription) bool { return sub.Backlog == 40 })
	s.await("letters", "done")
	require.Contains(t, s.log.String(), "a change begins")
	require.Contains(t, s.log.String(), "a change is done")
	_, second := s.post(page, "do", url.Values{"plan": {planID.FindStringSubmatch(plan)[1]}})
	require.Contains(t, second, "confirmed already")
}

// failTest replays a letter as a test, and lets it die again. It returns a consumer of the retry topic.
func (s *site) failTest(page string) pulsar.Consumer {
	_, plan := s.post(page, "plan", url.Values{"topic": {dead}, "action": {"canary"}})
	require.Contains(s.t, plan, "Replay as a test 1 letter")
	c, err := s.client.Subscribe(pulsar.ConsumerOptions{Topic: retry, SubscriptionName: "billing", Type: pulsar.Shared})
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	s.confirm(page, plan)
	msg, err := c.Receive(waittest.Context(s.t))
	require.NoError(s.t, err)
	p, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: dead})
	require.NoError(s.t, err)
	defer p.Close()
	props := msg.Properties()
	props["EXCEPTION_MESSAGE"] = "still broken"
	_, err = p.Send(waittest.Context(s.t), &pulsar.ProducerMessage{Payload: msg.Payload(), Properties: props})
	require.NoError(s.t, err)
	require.NoError(s.t, c.Ack(msg))
	s.await("letters", "failed")
	return c
}

func TestCanaryThatIsDeadAgainFails(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(3, 1)
	page := groupsOf(dead)
	s.await(page, "3 letters")
	s.failTest(page)
	require.Contains(t, s.await(page, "The letter is dead again"), "still broken")
}

// The first plan would replace the failed test. Before it is confirmed, the second one replaces the test, and is
// stopped.
func TestPlanContinuesAReplayThatBeganAfterThePlan(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(3, 1)
	page := groupsOf(dead)
	s.await(page, "3 letters")
	c := s.failTest(page)
	form := url.Values{"topic": {dead}, "action": {"replay"}}
	_, first := s.post(page, "plan", form)
	require.Contains(t, first, "This replay replaces the previous test")
	form.Set("rate", "0.01")
	_, second := s.post(page, "plan", form)
	body := s.confirm(page, second)
	_, err := c.Receive(waittest.Context(t))
	require.NoError(t, err)
	job := regexp.MustCompile(`name="id" value="(\w+)"`).FindStringSubmatch(body)[1]
	s.post(page, "stop", url.Values{"id": {job}})
	s.await("job?id="+job, "It was stopped")
	job = regexp.MustCompile(`job\?id=\w+`).FindString(s.confirm(page, first) + s.await(page, "done</span>"))
	s.await(job, "It continued an earlier replay")
}

func TestPurgeExportsTheLettersBeforeItDeletesThem(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(5, 1)
	page := groupsOf(dead)
	s.await(page, "5 letters")
	_, plan := s.post(page, "plan", url.Values{"topic": {dead}, "action": {"purge"}})
	require.Contains(t, plan, "Export and delete 5 letters")
	s.confirm(page, plan)
	body := s.await(page, "No letters are left")
	link := regexp.MustCompile(`job\?id=\w+`).FindString(body)
	s.await(link, "Save the export")
	status, file := s.get(strings.ReplaceAll(link, "job?", "exported?"))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 5, strings.Count(file, "\n"))
}

func TestReplayContinuesWithoutAPage(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(60, 1)
	page := groupsOf(dead)
	s.await(page, "60 letters")
	_, plan := s.post(page, "plan", url.Values{"topic": {dead}, "action": {"replay"}, "rate": {"50"}})
	s.confirm(page, plan)
	s.browser.CloseIdleConnections()
	s.broker.Await(t, retry, "billing", waittest.Limit,
		func(sub pulsartest.Subscription) bool { return sub.Backlog == 60 })
}

func TestSecondChangeOfATopicIsRefusedWhileOneRuns(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(60, 1)
	page := groupsOf(dead)
	s.await(page, "60 letters")
	form := url.Values{"topic": {dead}, "action": {"replay"}, "rate": {"30"}}
	_, first := s.post(page, "plan", form)
	_, second := s.post(page, "plan", form)
	s.confirm(page, first)
	status, body := s.post(page, "do", url.Values{"plan": {planID.FindStringSubmatch(second)[1]}})
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "“Replay 60 letters to orders-billing-RETRY” is under way")
	s.await("letters", "done</span> 60 of 60")
}

func TestSearchFindsKeyIDTextAndPayload(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(50, 2)
	s.await(groupsOf(dead), "50 letters")
	list := "group?topic=" + url.QueryEscape(dead) + "&q="
	for query, want := range map[string]string{"customer-16": "2 letters", "cause+b+of": "25 letters",
		"order+49": "1 letter", "nothing": "No letter is found"} {
		_, body := s.get(list + query)
		require.Contains(t, body, want, query)
	}
	_, body := s.get(list + "%22order%22%3A+1033")
	require.Contains(t, body, "No letter is found")
	_, body = s.get(list + "%22order%22%3A+1033&deep=1")
	require.Contains(t, body, "1 letter")
}
