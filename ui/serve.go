package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static templates
var files embed.FS

// pages are the pages, by the last element of their paths. Since only this element counts and all links are relative,
// the Handler works below any path.
var pages = map[string]func(*Handler, http.ResponseWriter, *http.Request){
	"":          (*Handler).overviewPage,
	"letters":   (*Handler).topicsPage,
	"groups":    (*Handler).groupsPage,
	"group":     (*Handler).groupPage,
	"letter":    (*Handler).letterPage,
	"payload":   (*Handler).payloadFile,
	"export":    (*Handler).exportFile,
	"job":       (*Handler).jobPage,
	"exported":  (*Handler).exportedFile,
	"waiting":   (*Handler).waitingPage,
	"doctor":    (*Handler).doctorPage,
	"policies":  (*Handler).policiesPage,
	"events":    (*Handler).events,
	"style.css": (*Handler).static,
	"app.js":    (*Handler).static,
}

// changes are the pages that forms are posted to.
var changes = map[string]func(*Handler, http.ResponseWriter, *http.Request){
	"plan": (*Handler).planPage,
	"do":   (*Handler).do,
	"stop": (*Handler).stop,
}

const maxForm = 1 << 20

// ServeHTTP answers with a page.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers(w)
	name := path.Base(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") || r.URL.Path == "" {
		name = ""
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	switch page, change := pages[name], changes[name]; {
	case !h.guard.isKnown(r.Host):
		h.fail(w, r, http.StatusMisdirectedRequest,
			fmt.Sprintf("The host name %q is not a known name of this server.", r.Host),
			"Use localhost or the address, or add the name to the hosts: redelivery ui -host NAME, or Options.Hosts.")
	case name == "style.css":
		h.static(w, r)
	case !h.guard.isSignedIn(r):
		h.signIn(w, r)
	case page == nil && change == nil:
		h.fail(w, r, http.StatusNotFound, "There is no such page.", "")
	case page != nil && r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		h.fail(w, r, http.StatusMethodNotAllowed, "This page can only be read.", "")
	case page != nil:
		page(h, w, r)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		h.fail(w, r, http.StatusMethodNotAllowed, "Only a form can be sent to this page.", "")
	case !h.o.AllowChanges:
		h.fail(w, r, http.StatusForbidden, "These pages change nothing.",
			"redelivery ui -allow-changes, or Options.AllowChanges, allows changes.")
	case !h.guard.isOwnForm(r):
		h.fail(w, r, http.StatusForbidden, "The form is from another browser, or from before the server started.",
			"Go back, load the page again, and send the form again.")
	default:
		change(h, w, r)
	}
}

// signIn reads the token from the address or the form. If there is no token, signIn asks for one.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	given := r.PostFormValue("token")
	if r.Method == http.MethodGet {
		given = r.URL.Query().Get("token")
	}
	if given != "" && h.guard.signIn(w, r, given) {
		redirect(w, "./")
		return
	}
	if given != "" {
		h.log.Warn("ui: a wrong token was sent", "from", r.RemoteAddr)
		time.Sleep(time.Second) // makes guessing slow
	}
	h.render(w, r, http.StatusUnauthorized, page{Title: "Sign in", Name: "signin", Data: given != ""})
}

// redirect answers with a relative redirect, since the Handler does not know the path of the pages.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// page is the data of a template.
type page struct {
	Title string
	Name  string // of the template
	Live  bool   // the page changes by itself
	Data  any

	CSRF    string
	Changes bool // changes are allowed
	Hidden  bool // payloads are hidden
	Version uint64
	Now     time.Time
	Signed  bool
	Running []jobView
	Trouble string // why figures may be old
}

func (p page) At() string { return p.Now.Format("15:04:05") }

var templates = template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/*.html"))

func (h *Handler) render(w http.ResponseWriter, r *http.Request, status int, p page) {
	p.Version, p.Now, p.Changes, p.Hidden = h.changes.Load(), time.Now(), h.o.AllowChanges, h.o.HidePayloads
	if p.Signed = h.guard.isSignedIn(r) && h.guard.isKnown(r.Host); p.Signed {
		p.Running, p.Trouble = h.jobs.running(), h.overview.trouble()
		if p.Changes {
			p.CSRF = h.guard.formToken(w, r)
		}
	}
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, "layout", layout{p, h}); err != nil {
		h.log.Error("ui: a page failed", "page", p.Name, "err", err)
		http.Error(w, "The page failed; the log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // fails only if the browser has gone
}

// layout is the data of the layout template. It renders the page's own part.
type layout struct {
	page
	h *Handler
}

// Part renders the page's own part.
func (l layout) Part() (template.HTML, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, l.Name, l.page)
	return template.HTML(out.String()), err //nolint:gosec // html/template has escaped it
}

// fail renders an error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, status int, what, remedy string) {
	h.render(w, r, status, page{Title: "Error", Name: "error", Data: struct{ What, Remedy string }{what, remedy}})
}

// unavailable renders an error of the broker.
func (h *Handler) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	h.fail(w, r, http.StatusBadGateway, errorText(err), "")
}

func (h *Handler) static(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "max-age=60")
	http.ServeFileFS(w, r, files, "static/"+path.Base(r.URL.Path))
}

// events sends a number whenever pages may have changed. The script in an open page then loads the page again.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Time{}) // not every server supports it
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(eventEvery)
	defer ticker.Stop()
	last, silent := uint64(0), 0
	for {
		h.overview.visit(h)
		var err error
		if now := h.changes.Load(); now != last {
			last, silent = now, 0
			_, err = fmt.Fprintf(w, "data: %d\n\n", now)
		} else if silent++; silent%15 == 0 {
			_, err = fmt.Fprint(w, ": \n\n") // a comment, which shows whether the connection still works
		}
		if err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-h.ctx.Done():
			return
		}
	}
}

const eventEvery = time.Second
