package ui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"strings"
)

// guard decides which requests may see the pages, and which may change something.
type guard struct {
	token  string
	hosts  []string
	secret [32]byte // of this Handler; signs cookies and form tokens
	origin *http.CrossOriginProtection
}

const (
	cookieToken = "redelivery-ui"      // shows that the browser has sent the token
	cookieForms = "redelivery-ui-form" // identifies the browser; form tokens sign this cookie's value
)

func newGuard(o Options) guard {
	g := guard{token: o.Token, hosts: o.Hosts, origin: http.NewCrossOriginProtection()}
	_, _ = rand.Read(g.secret[:]) // never fails
	return g
}

// isKnown reports whether a browser may use this host name. IP addresses and localhost are safe: another site cannot
// have them as its own name.
func (g *guard) isKnown(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || net.ParseIP(host) != nil ||
		slices.ContainsFunc(g.hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// sign returns a signature of value that only this Handler can make.
func (g *guard) sign(value string) string {
	mac := hmac.New(sha256.New, g.secret[:])
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// isSignedIn reports whether a request has the token: in the cookie, or as a bearer token.
func (g *guard) isSignedIn(r *http.Request) bool {
	if g.token == "" {
		return true
	}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, g.token)
	}
	cookie, err := r.Cookie(cookieToken)
	return err == nil && same(cookie.Value, g.sign("token"))
}

// signIn compares the token, and gives the browser the cookie.
func (g *guard) signIn(w http.ResponseWriter, r *http.Request, token string) bool {
	if !same(token, g.token) {
		return false
	}
	g.setCookie(w, r, cookieToken, g.sign("token"))
	return true
}

// setCookie sets a cookie for the pages' own path. The cookie lasts until the browser is closed.
func (g *guard) setCookie(w http.ResponseWriter, r *http.Request, name, value string) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil})
}

// formToken returns the token for the forms of this browser. It signs the value of a cookie, and sets this cookie if
// the browser has none.
func (g *guard) formToken(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(cookieForms); err == nil && len(cookie.Value) == 32 {
		return g.sign("form " + cookie.Value)
	}
	value := make([]byte, 16)
	_, _ = rand.Read(value) // never fails
	text := hex.EncodeToString(value)
	g.setCookie(w, r, cookieForms, text)
	return g.sign("form " + text)
}

// isOwnForm reports whether a request is a form of these pages, sent by the browser for which the form was made.
func (g *guard) isOwnForm(r *http.Request) bool {
	cookie, err := r.Cookie(cookieForms)
	return err == nil && g.origin.Check(r) == nil && same(r.PostFormValue("csrf"), g.sign("form "+cookie.Value))
}

// headers sets headers that forbid frames, scripts and styles of other sites, and guesses of content types. The pages
// need none of these.
func headers(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}
