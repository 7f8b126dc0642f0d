package browsertest

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the pictures into docs/img instead of a temporary directory")

// mostBytes is the largest size of a picture for the documents.
const mostBytes = 150_000

// The test also takes a picture of each page, light and dark.
func TestNoPageIsCutOffOnAWideScreenOrAPhone(t *testing.T) {
	if os.Getenv("PULSAR_URL") != "" {
		t.Skip("names and rates in the pictures would differ each time")
	}
	s := newSite(t)
	s.storeOldLetters(1200)
	s.broken.Store(false)
	for n := range 40 {
		s.publish(s.orders, order(n))
	}
	for n := range 3 {
		s.publish(s.orders, slow(n))
	}
	s.publish(s.orders, &pulsar.ProducerMessage{Key: "customer-4", Payload: []byte(`<html><script>alert(1)</script>`)})
	dir := t.TempDir()
	if *update {
		dir = filepath.Join("..", "..", "docs", "img")
	}
	topic := url.QueryEscape(s.dead)
	for _, scheme := range []string{"light", "dark"} {
		ctx := newBrowser(t)
		require.NoError(t, chromedp.Run(ctx,
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
				Value: scheme}})))
		var group, letter string
		s.visit(ctx, "groups?topic="+topic, ".rows .cause a")
		require.NoError(t, chromedp.Run(ctx, chromedp.AttributeValue(".rows .cause a", "href", &group, nil)))
		s.visit(ctx, group, ".rows td a")
		require.NoError(t, chromedp.Run(ctx, chromedp.AttributeValue(".rows td a", "href", &letter, nil)))
		for _, page := range []struct{ name, path, ready string }{
			{"overview", "", ".findings .warn, .findings .bad, .findings .good"},
			{"groups", "groups?topic=" + topic, ".rows .spark"}, {"group", group, ".rows"},
			{"letter", letter, "pre"}, {"waiting", "waiting", ".rows"}, {"doctor", "doctor", ".finding"},
			{"policies", "policies?simulate=1", ".figures"},
		} {
			s.visit(ctx, page.path, page.ready)
			var data []byte
			require.NoError(t, chromedp.Run(ctx, chromedp.EmulateViewport(1280, 800),
				chromedp.CaptureScreenshot(&data)))
			assert.Less(t, len(data), mostBytes, page.name)
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("ui-%s-%s.png", page.name, scheme)), data,
				0o600))
			for _, width := range []int64{1280, 390} {
				var over int
				require.NoError(t, chromedp.Run(ctx, chromedp.EmulateViewport(width, 800),
					chromedp.Evaluate(`document.documentElement.scrollWidth - innerWidth`, &over)))
				require.LessOrEqual(t, over, 0, "%s is %d pixels too wide for a screen of %d", page.name, over, width)
			}
			require.NoError(t, chromedp.Run(ctx, chromedp.EmulateViewport(1280, 800)))
		}
	}
}

// visit opens a page and waits for a part of it.
func (s *site) visit(ctx context.Context, path, ready string) {
	s.t.Helper()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	require.NoError(s.t, chromedp.Run(limited, chromedp.Navigate(s.server.URL+"/debug/"+path),
		chromedp.WaitVisible(ready, chromedp.ByQuery)), path)
}
