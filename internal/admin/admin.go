// Package admin calls a broker's admin REST API.
package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Patience is how long an API may take to answer. Only tests change it.
var Patience = 30 * time.Second

// Compaction is the subscription that the broker creates on a topic when it compacts the topic. No consumer reads it.
const Compaction = "__compaction"

// Subscriptions are the statistics of a topic's subscriptions by name, without Compaction.
type Subscriptions[S any] map[string]S

// UnmarshalJSON implements json.Unmarshaler.
func (s *Subscriptions[S]) UnmarshalJSON(text []byte) error {
	err := json.Unmarshal(text, (*map[string]S)(s))
	delete(*s, Compaction)
	return err
}

// An API is the admin REST API at URL. A nil Client is http.DefaultClient.
type API struct {
	URL    string
	Client *http.Client
}

// Error is an answer with a status of 300 or more.
type Error struct {
	Method, Path string
	Status       int
	Text         string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, e.Path, e.Status, http.StatusText(e.Status), e.reason())
}

// HasReason reports whether the text has the form of Pulsar's errors.
func (e *Error) HasReason() bool { return e.jsonReason() != "" }

func (e *Error) jsonReason() string {
	var answer struct{ Reason string }
	_ = json.Unmarshal([]byte(e.Text), &answer) // other texts have no reason
	return answer.Reason
}

// reason returns the broker's message in one line, without the stack trace of an internal error.
func (e *Error) reason() string {
	text := e.Text
	if given := e.jsonReason(); given != "" {
		text, _, _ = strings.Cut(given, "Stacktrace:")
	}
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxReason {
		text = string(runes[:maxReason]) + "…"
	}
	return text
}

const maxReason = 500 // characters

// NotFound reports whether err is an answer with status 404.
func NotFound(err error) bool { return HasStatus(err, http.StatusNotFound) }

// HasStatus reports whether err is an answer with this status.
func HasStatus(err error, status int) bool {
	var answer *Error
	return errors.As(err, &answer) && answer.Status == status
}

// Call calls the API at url, without authentication.
func Call(ctx context.Context, url, method, path string, body, answer any) error {
	return API{URL: url}.Call(ctx, method, path, body, answer)
}

// Call sends body as JSON to a path below /admin/v2, and decodes the response into answer. A nil body is not sent. If
// answer is nil or the response is empty, nothing is decoded. A *[]byte gets the response as it is. If path begins with
// a topic's name, Call turns the name into the form of the API. A status of 300 or more is an *Error. No answer within
// Patience is an error, too.
func (a API) Call(ctx context.Context, method, path string, body, answer any) error {
	silent, _ := ctx.Value(once{}).(*atomic.Bool)
	noAnswer := fmt.Errorf("the admin API at %s did not answer within %v", a.URL, Patience)
	if silent != nil && silent.Load() {
		return noAnswer
	}
	limited, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err := a.call(limited, method, path, body, answer)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		if silent != nil {
			silent.Store(true)
		}
		return noAnswer
	}
	return err
}

type once struct{}

// Once returns a context in which only one call waits for a silent API: once a call has had no answer within Patience,
// later calls with the context fail at once.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, once{}, &atomic.Bool{}) }

// maxAnswer limits the bytes of an answer. It is far more than the names of a hundred thousand topics.
const maxAnswer = 64 << 20

func (a API) call(ctx context.Context, method, path string, body, answer any) error {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(data)
	}
	path = strings.Replace(path, "://", "/", 1)
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(a.URL, "/")+"/admin/v2/"+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // so that no connection stays open
	resp, err := cmp.Or(a.Client, http.DefaultClient).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(text) > maxAnswer {
		return fmt.Errorf("the admin API at %s answered with more than %d bytes", a.URL, maxAnswer)
	}
	if resp.StatusCode >= 300 {
		return &Error{method, path, resp.StatusCode, string(text)}
	}
	if raw, ok := answer.(*[]byte); ok {
		*raw = text
		return nil
	}
	if answer != nil && len(text) > 0 {
		return json.Unmarshal(text, answer)
	}
	return nil
}

// WantURL returns the wanted form of an API's address, or "" if address has that form. An address must not have a path.
func WantURL(address string) string {
	u, err := url.Parse(address)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		strings.TrimRight(u.Path, "/")+u.RawQuery+u.Fragment == "" {
		return ""
	}
	return "http://host:8080 or https://host:8443"
}

// Topic returns the path of a topic. Its full name may have any character.
func Topic(name string) string {
	domain, rest, _ := strings.Cut(name, "://")
	parts := strings.SplitN(rest, "/", 3)
	for i := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(parts[i]), "+", "%2B") // brokers read a plus as a blank
	}
	return domain + "/" + strings.Join(parts, "/")
}

// CursorName returns the name of a subscription's cursor at the broker: the subscription's name, encoded by Java's
// URLEncoder.
func CursorName(subscription string) string {
	return cursorNames.Replace(url.QueryEscape(subscription))
}

var cursorNames = strings.NewReplacer("~", "%7E", "%2A", "*") // where url.QueryEscape differs

// Clock returns the broker's time, to the second. No answer within Patience is an error.
func (a API) Clock(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(a.URL, "/")+"/admin/v2/brokers/version", nil)
	if err != nil {
		return time.Time{}, err
	}
	req.Close = true
	resp, err := cmp.Or(a.Client, http.DefaultClient).Do(req)
	if err != nil {
		return time.Time{}, err
	}
	defer resp.Body.Close()
	return http.ParseTime(resp.Header.Get("Date"))
}
