package ui_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/ui"
)

func TestUnknownHostIsRefused(t *testing.T) {
	s := newSite(t, func(o *ui.Options) { o.Hosts = []string{"ops.example"} })
	for host, want := range map[string]int{"evil.example": 421, "localhost:7070": 200, "127.0.0.1": 200,
		"[::1]:7070": 200, "OPS.example:80": 200, "localhost.evil.example": 421} {
		req, err := http.NewRequest(http.MethodGet, s.server.URL+"/debug/letters", nil)
		require.NoError(t, err)
		req.Host = host
		resp, err := s.browser.Do(req)
		require.NoError(t, err)
		status, body := read(t, resp)
		require.Equal(t, want, status, host)
		require.Equal(t, want == 200, strings.Contains(body, "changes allowed"), host)
	}
}

func TestChangeWithoutTokenOfItsFormIsRefused(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(3, 1)
	page := groupsOf(dead)
	body := s.await(page, "3 letters")
	token := formToken.FindStringSubmatch(body)[1]
	form := url.Values{"topic": {dead}, "action": {"replay"}, "csrf": {token}}
	send := func(client *http.Client, change func(*http.Request)) int {
		req, err := http.NewRequest(http.MethodPost, s.server.URL+"/debug/plan", strings.NewReader(form.Encode()))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		change(req)
		resp, err := client.Do(req)
		require.NoError(t, err)
		status, _ := read(t, resp)
		return status
	}
	require.Equal(t, 200, send(s.browser, func(*http.Request) {}))
	require.Equal(t, 403, send(s.newBrowser(), func(*http.Request) {}), "another browser's token was accepted")
	require.Equal(t, 403, send(s.browser, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }),
		"a form of another site was accepted")
	require.Equal(t, 403, send(s.browser, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }),
		"a form of another origin was accepted")
	form.Set("csrf", strings.Repeat("0", len(token)))
	require.Equal(t, 403, send(s.browser, func(*http.Request) {}), "a wrong token was accepted")
	form.Del("csrf")
	require.Equal(t, 403, send(s.browser, func(*http.Request) {}), "a form without a token was accepted")
}

func TestChangesAreRefusedUnlessAllowed(t *testing.T) {
	s := newSite(t, func(o *ui.Options) { o.AllowChanges = false })
	s.storeLetters(1, 1)
	body := s.await(groupsOf(dead), "1 letter")
	require.NotContains(t, body, `<form method="post"`)
	for _, path := range []string{"plan", "do", "stop"} {
		status, _ := s.post(groupsOf(dead), path, url.Values{"topic": {dead}, "action": {"replay"}})
		require.Equal(t, http.StatusForbidden, status, path)
	}
	resp, err := s.browser.Get(s.server.URL + "/debug/plan")
	require.NoError(t, err)
	status, _ := read(t, resp)
	require.Equal(t, http.StatusMethodNotAllowed, status)
}

func TestBrowserIsAskedForTheTokenOnce(t *testing.T) {
	const token = "correct horse battery"
	s := newSite(t, func(o *ui.Options) { o.Token = token })
	status, body := s.get("letters")
	require.Equal(t, http.StatusUnauthorized, status)
	require.NotContains(t, body, "Dead letters")
	status, _ = s.get("events")
	require.Equal(t, http.StatusUnauthorized, status)
	status, body = s.get("?token=" + url.QueryEscape(token))
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "Dead letters")
	status, _ = s.get("letters")
	require.Equal(t, http.StatusOK, status)
}

func TestHeadersForbidScriptsAndFrames(t *testing.T) {
	s := newSite(t, nil)
	for _, path := range []string{"", "letters", "style.css", "app.js", "nothing"} {
		resp, err := s.browser.Get(s.server.URL + "/debug/" + path)
		require.NoError(t, err)
		_, _ = read(t, resp)
		require.Contains(t, resp.Header.Get("Content-Security-Policy"),
			"default-src 'none'; script-src 'self'; style-src 'self'")
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	}
}

// Hostile letters must not make a page large, either.
func TestHostileLettersAreNeverMarkup(t *testing.T) {
	s := newSite(t, nil)
	s.subscribe(origin, "billing")
	s.subscribe(dead, "inspect")
	p, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: dead, DisableBatching: true, EnableChunking: true})
	require.NoError(t, err)
	defer p.Close()
	const script = `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	hostile := []string{script, "\u202Egnp.exe\u2066\u200B", "\xff\xfe<b>\xc3", strings.Repeat("<i>x", 1<<18),
		"\x00\x1b[2J\r\n<svg/onload=alert(1)>", "{{.}}javascript:alert(1)"}
	for i, text := range hostile {
		meta := text[:min(len(text), 1<<16)]
		_, err := p.Send(context.Background(),
			&pulsar.ProducerMessage{Payload: []byte(text), Key: meta, OrderingKey: meta, Properties: map[string]string{
				"REAL_TOPIC": meta, "REAL_SUBSCRIPTION": meta, "ORIGIN_MESSAGE_ID": meta, "EXCEPTION_TYPE": meta,
				"EXCEPTION_MESSAGE": meta,
				"RECONSUMETIMES":    meta, "REDELIVERY_COUNT": meta, "REPLAY_COUNT": "2", "REPLAY_TOPIC": meta,
				"REPLAY_RUN": meta, "DEAD_LETTER_TIME": meta,
				"ORIGIN_PUBLISH_TIME": fmt.Sprint(int64(1)<<62 - int64(i)), meta[:min(len(meta), 1000)]: "name"}})
		require.NoError(t, err)
	}
	_, err = p.Send(context.Background(),
		&pulsar.ProducerMessage{Payload: append([]byte(`{"a":"`),
			append(bytes.Repeat([]byte("<u>"), 10<<20/3), `"}`...)...)})
	require.NoError(t, err)
	body := s.await(groupsOf(dead), "7 letters")
	pages := []string{groupsOf(dead), "group?topic=" + url.QueryEscape(dead),
		"group?topic=" + url.QueryEscape(dead) + "&q=" + url.QueryEscape(script),
		"letter?topic=" + url.QueryEscape(script) + "&id=1:1:0", "letter?topic=" + url.QueryEscape(dead) + "&id=" +
			url.QueryEscape(script), "doctor?topic=" + url.QueryEscape(script)}
	for _, m := range groupLink.FindAllStringSubmatch(body, -1) {
		pages = append(pages, "group?topic="+url.QueryEscape(dead)+"&group="+m[1])
	}
	_, list := s.get(pages[1])
	ids := regexp.MustCompile(`name="id" value="([\d:]+)"`).FindAllStringSubmatch(list, -1)
	require.Len(t, ids, 7)
	for _, m := range ids {
		pages = append(pages, "letter?topic="+url.QueryEscape(dead)+"&id="+m[1])
	}
	for _, page := range pages {
		_, body := s.get(page)
		for _, bad := range []string{"<script>alert", "<img", "<b>", "<i>", "<u>", "<svg/", "\u202E", "\u2066", "\x00",
			"\x1b", `href="javascript`} {
			assert.NotContains(t, body, bad, page)
		}
		assert.Less(t, len(body), 2_000_000, page)
		assert.Equal(t, strings.ToValidUTF8(body, ""), body, page)
	}
	status, plan := s.post(groupsOf(dead), "plan", url.Values{"topic": {dead}, "action": {"purge"}})
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, plan, "<script>alert")
}

func TestHiddenPayloadsAreInNoAnswer(t *testing.T) {
	s := newSite(t, func(o *ui.Options) { o.HidePayloads = true })
	s.storeLetters(1, 1)
	s.await(groupsOf(dead), "1 letter")
	_, list := s.get("group?topic=" + url.QueryEscape(dead))
	id := regexp.MustCompile(`name="id" value="([\d:]+)"`).FindStringSubmatch(list)[1]
	for path, want := range map[string]int{"letter": 200, "payload": 403, "export": 403} {
		status, body := s.get(path + "?topic=" + url.QueryEscape(dead) + "&id=" + id)
		require.Equal(t, want, status, path)
		require.NotContains(t, body, "total", path)
	}
}
