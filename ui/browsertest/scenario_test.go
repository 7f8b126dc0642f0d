package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// From an outage to an empty dead letter topic: the overview follows without a reload, a test letter dies again, the
// service is mended, and the replay ends.
func TestFailingMessagesAreReplayedAfterTheFix(t *testing.T) {
	s := newSite(t)
	ctx := newBrowser(t)
	s.visit(ctx, "", "#overview tbody")
	mark(ctx, t)
	for n := range 30 {
		s.publish(orders, order(n))
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
	s.text(ctx, "h1", "Replay as a test 1 letter to orders-billing-RETRY?")
	s.click(ctx, "form[action=do] button")
	s.text(ctx, "#job", "The letter is dead again")

	s.broken.Store(false)
	s.visit(ctx, "groups?topic="+url.QueryEscape(dead), "#groups tbody")
	s.text(ctx, "#groups .big", "30")
	s.enter(ctx, `input[name=rate]`, "15")
	s.click(ctx, `button[value="replay"]`)
	s.text(ctx, "h1", "Replay 30 letters to orders-billing-RETRY?")
	s.click(ctx, "form[action=do] button")
	s.text(ctx, "#job", "running")
	mark(ctx, t)
	s.text(ctx, "#job", "Done: 30 of 30")
	require.True(t, marked(ctx, t), "the progress was loaded again")
	s.click(ctx, "main a[href^=groups]")
	s.text(ctx, "#summary", "No letters are left")
	s.broker.Await(t, dead, "inspect", limit, func(sub pulsartest.Subscription) bool { return sub.Backlog == 0 })
	require.Eventually(t, func() bool { return s.handled.Load() >= 30 }, limit, 10*time.Millisecond)
}

// The page is closed in the middle, and another browser sees the end.
func TestReplayGoesOnWhenItsPageIsClosed(t *testing.T) {
	s := newSite(t)
	s.broken.Store(false)
	s.past(60)
	first := newBrowser(t)
	s.visit(first, "groups?topic="+url.QueryEscape(dead), "#groups tbody")
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

// Everything can be reached and done without a mouse.
func TestKeyboardAloneReplays(t *testing.T) {
	s := newSite(t)
	s.broken.Store(false)
	s.past(6)
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
	s.focus(ctx, `document.activeElement.textContent === "Replay 6 letters to orders-billing-RETRY"`)
	s.press(ctx, kb.Enter)
	s.text(ctx, "#job", "Done: 6 of 6")
}

// A broker that goes away is named, the last figures stay, and the page recovers by itself.
func TestBrokerThatGoesAwayAndComesBack(t *testing.T) {
	s := newSite(t)
	s.past(3)
	ctx := newBrowser(t)
	s.visit(ctx, "", "#overview .dead")
	mark(ctx, t)
	s.away.Store(true)
	s.text(ctx, "#trouble", "The broker does not answer since")
	s.text(ctx, "#overview", "orders")
	s.away.Store(false)
	s.wait(ctx, `document.querySelector("#trouble").textContent.trim() === ""`, "the trouble to end")
	require.True(t, marked(ctx, t), "the page was loaded again")
}

// A letter that is full of markup runs no script and has no part outside its page.
func TestHostileLetterRunsNoScript(t *testing.T) {
	s := newSite(t)
	m := order(1)
	m.Payload = []byte(`<script>document.title="owned"</script><img src=x onerror='document.title="owned"'>`)
	m.Key = `"><script>document.title="owned"</script>`
	m.Properties["EXCEPTION_MESSAGE"] = string(m.Payload) + "\u202E"
	s.publish(dead, m)
	ctx := newBrowser(t)
	s.visit(ctx, "groups?topic="+url.QueryEscape(dead), "#groups tbody")
	s.click(ctx, "#groups .cause a")
	s.click(ctx, "#rows tbody a")
	s.text(ctx, "pre", "<script>")
	require.Contains(t, s.eval(ctx, "document.title"), "Letter")
	require.Equal(t, "0", s.eval(ctx, `String(document.querySelectorAll("main script, main img").length)`))
}

func mark(ctx context.Context, t *testing.T) {
	require.NoError(t, chromedp.Run(ctx, chromedp.Evaluate("window.mark = true", nil)))
}

// marked reports whether the page is the one that was marked.
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
			// else the page is being loaded
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

// focus presses Tab until the part that is meant has the focus, and sees that the focus can be seen.
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
