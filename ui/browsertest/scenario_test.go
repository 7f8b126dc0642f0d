package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// During an outage, the overview changes without a reload, and a letter that is replayed as a test dies again. Then the
// service is fixed, and the replay empties the dead letter topic.
func TestFailingMessagesAreReplayedAfterTheFix(t *testing.T) {
	s := newSite(t)
	ctx := newBrowser(t)
	s.visit(ctx, "", "#overview tbody")
	mark(ctx, t)
	for n := range 30 {
		s.publish(s.orders, order(n))
	}
	s.text(ctx, "#overview .dead", "30")
	require.True(t, marked(ctx, t), "the overview was loaded again")

	s.click(ctx, "#overview .dead")
	s.text(ctx, "#groups .big", "30")
	s.click(ctx, "#groups .cause a")
	s.text(ctx, "#rows .quiet", "30 letters")
	s.click(ctx, "#rows tbody a")
	s.text(ctx, "pre", `"order"`)
	s.click(ctx, `button[value="canary"]`)
	s.text(ctx, "h1", "Replay as a test 1 letter to "+s.name+"-billing-RETRY?")
	s.click(ctx, "form[action=do] button")
	s.text(ctx, "#job", "The letter is dead again")

	s.broken.Store(false)
	s.visit(ctx, "groups?topic="+url.QueryEscape(s.dead), "#groups tbody")
	s.text(ctx, "#groups .big", "30")
	s.enter(ctx, `input[name=rate]`, "15")
	s.click(ctx, `button[value="replay"]`)
	s.text(ctx, "h1", "Replay 30 letters to "+s.name+"-billing-RETRY?")
	s.click(ctx, "form[action=do] button")
	s.text(ctx, "#job", "running")
	mark(ctx, t)
	s.text(ctx, "#job", "Done: 30 of 30")
	require.True(t, marked(ctx, t), "the progress was loaded again")
	s.click(ctx, "main a[href^=groups]")
	s.text(ctx, "#summary", "No letters are left")
	require.Eventually(t, func() bool { return s.handled.Load() >= 30 }, limit, 10*time.Millisecond)
}

// Another browser shows the end of the replay.
func TestReplayContinuesWhenItsPageIsClosed(t *testing.T) {
	s := newSite(t)
	s.broken.Store(false)
	s.storeOldLetters(60)
	first := newBrowser(t)
	s.visit(first, "groups?topic="+url.QueryEscape(s.dead), "#groups tbody")
	s.enter(first, `input[name=rate]`, "30")
	s.click(first, `button[value="replay"]`)
	s.click(first, "form[action=do] button")
	s.text(first, "#job", "running")
	var page string
	require.NoError(t, chromedp.Run(first, chromedp.Location(&page)))
	require.NoError(t, chromedp.Cancel(first))
	second := newBrowser(t)
	s.visit(second, page[strings.LastIndex(page, "/")+1:], "#job")
	s.text(second, "#job", "Done: 60 of 60")
}

// Two people try to replay the same group.
func TestSecondReplayOfAGroupSaysThatOneIsUnderWay(t *testing.T) {
	s := newSite(t)
	s.broken.Store(false)
	s.storeOldLetters(60)
	first, second := newBrowser(t), newBrowser(t)
	for _, ctx := range []context.Context{first, second} {
		s.visit(ctx, "groups?topic="+url.QueryEscape(s.dead), "#groups tbody")
		s.click(ctx, "#groups .cause a")
		s.enter(ctx, `input[name=rate]`, "10")
		s.click(ctx, `button[value="replay"]`)
		s.text(ctx, "h1", "letters to "+s.name+"-billing-RETRY?")
	}
	s.click(first, "form[action=do] button")
	s.text(first, "#job", "running 1")
	s.click(second, "form[action=do] button")
	s.text(second, "h1", "“Replay 30 letters to "+s.name+"-billing-RETRY” is under way")
	s.text(first, "#job", "Done: 30 of 30")
	s.visit(second, "groups?topic="+url.QueryEscape(s.dead), "#groups tbody")
	s.text(second, "#summary h1", "30 letters")
}

// The log forgets one of two waiting messages. Then both are delivered again before their delays are over.
func TestWaitingMessagesAreForgottenAndRedelivered(t *testing.T) {
	s := newSite(t)
	for n := range 2 {
		s.publish(s.orders, slow(n))
	}
	ctx := newBrowser(t)
	s.visit(ctx, "waiting", "#rows table")
	s.text(ctx, "#redeliver", "2 messages wait in this process")
	s.click(ctx, "#rows tbody input")
	s.click(ctx, `button[value="forget"]`)
	s.text(ctx, "h1", "Forget 1 message of "+s.name+"?")
	s.click(ctx, "form[action=do] button")
	s.text(ctx, "#job", "Done: 1 of 1")
	s.click(ctx, `main a[href^=waiting]`)
	s.wait(ctx, `document.querySelectorAll("#rows tbody tr").length === 1`, "one message")

	before := s.failed.Load()
	s.click(ctx, `button[value="redeliver"]`)
	s.text(ctx, "h1", "Redeliver 2 messages of "+s.name+" now?")
	s.click(ctx, "form[action=do] button")
	s.text(ctx, "#job", "Done: 2 of 2")
	require.Eventually(t, func() bool { return s.failed.Load() == before+2 }, limit, 10*time.Millisecond)
}

func TestReplayNeedsOnlyTheKeyboard(t *testing.T) {
	s := newSite(t)
	s.broken.Store(false)
	s.storeOldLetters(6)
	ctx := newBrowser(t)
	s.visit(ctx, "", "#overview .dead")
	s.focus(ctx, "document.activeElement.classList.contains('dead')")
	s.press(ctx, kb.Enter)
	s.text(ctx, "#groups", "connection refused")
	s.wait(ctx, `document.readyState === "complete"`, "all of it")
	s.press(ctx, "/")
	require.Equal(t, "q", s.eval(ctx, "document.activeElement.id"))
	s.focus(ctx, `document.activeElement.value === "replay"`)
	s.press(ctx, kb.Enter)
	s.text(ctx, "h1", "Replay 6 letters")
	s.focus(ctx, `document.activeElement.textContent === "Replay 6 letters to `+s.name+`-billing-RETRY"`)
	s.press(ctx, kb.Enter)
	s.text(ctx, "#job", "Done: 6 of 6")
}

// The page must recover by itself, and a replay that was under way must continue to its end.
func TestPageKeepsItsFiguresWhileTheBrokerIsAway(t *testing.T) {
	s := newSite(t)
	s.broken.Store(false)
	s.storeOldLetters(60)
	ctx, second := newBrowser(t), newBrowser(t)
	s.visit(ctx, "", "#overview .dead")
	mark(ctx, t)
	s.visit(second, "groups?topic="+url.QueryEscape(s.dead), "#groups tbody")
	s.enter(second, `input[name=rate]`, "20")
	s.click(second, `button[value="replay"]`)
	s.click(second, "form[action=do] button")
	s.wait(second, `/running [1-9]/.test(document.querySelector("#job")?.textContent)`, "the first letters")
	s.goAway()
	s.text(ctx, "#trouble", "The broker has not answered since")
	s.text(ctx, "#overview", s.name)
	s.comeBack()
	s.wait(ctx, `document.querySelector("#trouble").textContent.trim() === ""`, "that the trouble is over")
	require.True(t, marked(ctx, t), "the page was loaded again")
	s.text(second, "#job", "Done: 60 of 60")
	require.Eventually(t, func() bool { return s.handled.Load() >= 60 }, limit, 10*time.Millisecond)
}

// A letter that no handler can read is edited, replayed and processed.
func TestEditedLetterIsProcessed(t *testing.T) {
	s := newSite(t)
	s.broken.Store(false)
	s.publish(s.orders, &pulsar.ProducerMessage{Key: "customer-4", Payload: []byte(`<html>1</html>`)})
	ctx := newBrowser(t)
	s.visit(ctx, "", "#overview .dead")
	s.click(ctx, "#overview .dead")
	s.click(ctx, "#groups .cause a")
	s.click(ctx, "#rows tbody a")
	s.click(ctx, ".edit summary")
	s.text(ctx, "#payload", "<html>1</html>")
	require.NoError(t, chromedp.Run(ctx, chromedp.SetValue("#payload", "{\n\"order\": 1}", chromedp.ByQuery)))
	s.click(ctx, `button[value="edit"]`)
	s.text(ctx, "h1", "Replay as edited 1 letter to "+s.name+"-billing-RETRY?")
	s.text(ctx, "pre", `"order": 1`)
	s.click(ctx, "form[action=do] button")
	s.text(ctx, "#job", "Done: 1 of 1")
	require.EqualValues(t, 1, s.handled.Load())
}

// Letters whose every field is hostile must not make a page wider than the screen, either.
func TestHostileLettersRunNoScript(t *testing.T) {
	s := newSite(t)
	const script = `"></title></script></textarea><script>document.title="owned"</script>` +
		`<img src=x onerror='document.title="owned"'>`
	for _, text := range []string{script, "\u202E\u2066" + script, "\xff\xfe\x00\x1b[2J" + script,
		strings.Repeat(script, 1<<19/len(script))} {
		meta := text[:min(len(text), 1<<14)]
		m := &pulsar.ProducerMessage{Payload: []byte(text), Key: meta, OrderingKey: meta,
			Properties: map[string]string{meta: meta}}
		for _, name := range []string{"REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID", "EXCEPTION_TYPE",
			"EXCEPTION_MESSAGE", "RECONSUMETIMES", "REDELIVERY_COUNT", "DEAD_LETTER_TIME", "REPLAY_TOPIC", "REPLAY_RUN",
			"EDITED_BY", "EDITED_TIME"} {
			m.Properties[name] = meta
		}
		m.Properties["REPLAY_COUNT"] = "2"
		s.publish(s.dead, m)
	}
	ctx := newBrowser(t)
	s.visit(ctx, "group?topic="+url.QueryEscape(s.dead), "#rows tbody")
	s.wait(ctx, `document.querySelectorAll("#rows tbody tr").length === 4`, "all letters")
	for n := range 4 {
		s.visit(ctx, "groups?topic="+url.QueryEscape(s.dead), "#groups tbody")
		s.noScript(ctx)
		s.visit(ctx, "group?topic="+url.QueryEscape(s.dead), "#rows tbody")
		s.noScript(ctx)
		s.click(ctx, fmt.Sprintf("#rows tbody tr:nth-child(%d) td a", n+1))
		s.wait(ctx, `document.querySelector("pre")?.textContent.length > 50`, "the payload")
		s.noScript(ctx)
	}
}

// noScript checks that no part of a message has run as a script, became markup, or made the page too wide.
func (s *site) noScript(ctx context.Context) {
	s.t.Helper()
	require.NotEqual(s.t, "owned", s.eval(ctx, "document.title"))
	require.Equal(s.t, "0", s.eval(ctx, `String(document.querySelectorAll("main script, main img").length)`))
	require.Equal(s.t, "false", s.eval(ctx, `String(/[\u202A-\u202E\u2066-\u2069\u0000\u001b]/.test(document.documentElement.outerHTML))`))
	var over int
	require.NoError(s.t, chromedp.Run(ctx,
		chromedp.Evaluate(`document.documentElement.scrollWidth - innerWidth`, &over)))
	require.LessOrEqual(s.t, over, 0, "the page is too wide")
}

func mark(ctx context.Context, t *testing.T) {
	require.NoError(t, chromedp.Run(ctx, chromedp.Evaluate("window.mark = true", nil)))
}

// marked reports whether the page is still the one that was marked, and was not loaded again.
func marked(ctx context.Context, t *testing.T) (is bool) {
	require.NoError(t, chromedp.Run(ctx, chromedp.Evaluate("window.mark === true", &is)))
	return is
}

func (s *site) eval(ctx context.Context, script string) (text string) {
	s.t.Helper()
	require.NoError(s.t, chromedp.Run(ctx, chromedp.Evaluate(script, &text)))
	return text
}

// wait waits until a condition of the page is true.
func (s *site) wait(ctx context.Context, condition, what string) {
	s.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var is bool
		if err := chromedp.Run(ctx, chromedp.Evaluate("!!("+condition+")", &is)); err == nil && is {
			// an error means that the page is being loaded
			return
		}
	}
	var body string
	_ = chromedp.Run(ctx, chromedp.Text("body", &body, chromedp.ByQuery))
	require.Fail(s.t, "the page does not show "+what, body)
}

// text waits until a part of the page has a text.
func (s *site) text(ctx context.Context, selector, want string) {
	s.t.Helper()
	s.wait(ctx, fmt.Sprintf("document.querySelector(%q)?.textContent.replace(/\\s+/g, ' ').includes(%q)", selector,
		want), want+" in "+selector)
}

// click waits for a part of the page and clicks it.
func (s *site) click(ctx context.Context, selector string) {
	s.t.Helper()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	require.NoError(s.t, chromedp.Run(limited, chromedp.WaitVisible(selector, chromedp.ByQuery),
		chromedp.Click(selector, chromedp.ByQuery)), selector)
}

func (s *site) enter(ctx context.Context, selector, text string) {
	s.t.Helper()
	require.NoError(s.t, chromedp.Run(ctx, chromedp.SendKeys(selector, text, chromedp.ByQuery)))
}

func (s *site) press(ctx context.Context, key string) {
	s.t.Helper()
	require.NoError(s.t, chromedp.Run(ctx, chromedp.KeyEvent(key)))
}

// focus presses Tab until the condition is true for the element that has the focus, and checks that the focus is
// visible.
func (s *site) focus(ctx context.Context, condition string) {
	s.t.Helper()
	for range 60 {
		s.press(ctx, kb.Tab)
		var is bool
		require.NoError(s.t, chromedp.Run(ctx, chromedp.Evaluate("!!("+condition+")", &is)))
		if is {
			require.NotEqual(s.t, "none", s.eval(ctx, "getComputedStyle(document.activeElement).outlineStyle"))
			return
		}
	}
	require.Fail(s.t, "Tab does not reach "+condition)
}
