package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/payload"
)

// planEdit checks an edited payload, and plans a replay with it.
func (h *Handler) planEdit(
	ctx context.Context, r *http.Request, x *letterIndex, p *plan, filter deadletter.Filter) error {
	if len(filter.IDs) != 1 {
		return fmt.Errorf("%d letters are chosen, want the one to edit", len(filter.IDs))
	}
	l, err := x.letters.Letter(ctx, filter.IDs[0])
	if err != nil {
		return err
	}
	laid := h.layOut(ctx, x, &l)
	if laid.noEdit != "" {
		return errors.New("the payload " + laid.noEdit + ", so it cannot be edited")
	}
	schema, err := x.schemas.Find(ctx, l.Schema)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(r.PostFormValue("payload"), "\r\n", "\n") // forms send \r\n
	edited, err := payload.Encode(schema, l.Payload, text)
	if err != nil {
		return fmt.Errorf("the edited payload does not fit: %w", err)
	}
	if unchanged, err := payload.Encode(schema, l.Payload, laid.text); err != nil || bytes.Equal(edited, unchanged) {
		return errors.New("the payload is as before: change it, or use Replay to replay the letter unchanged")
	}
	from := r.RemoteAddr
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	p.edit = &deadletter.Edit{Payload: edited, By: "redelivery ui, from " + from}
	p.Text = showLines(text)
	p.Back = link("letter", "topic", x.topic, "id", l.ID)
	p.About = append(p.About, fmt.Sprintf("The letter's payload of %s becomes the payload below, of %s. The "+
		"properties %s and %s record the edit.",
		size(l.Size), size(len(edited)), deadletter.PropertyEditedBy, deadletter.PropertyEditedTime))
	if err := h.planReplay(ctx, r, x, p, deadletter.Filter{IDs: []string{l.ID}}, nil); err != nil || p.begin == nil {
		return err
	}
	p.Command = "" // no command line edits a letter
	if h.o.ExportDir != "" {
		h.exportFirst(x, p, l.ID)
	} else {
		p.Warn = append(p.Warn, "The original payload will be lost, since there is no directory for exports.")
	}
	return nil
}

// exportFirst makes the plan export the letter before it is replayed.
func (h *Handler) exportFirst(x *letterIndex, p *plan, id string) {
	p.file = exportName(x.topic)
	p.About = append(p.About, "The letter is exported to "+show(p.file)+" on the server first.")
	begin := p.begin
	p.begin = func(ctx context.Context, progress func(deadletter.Report)) (deadletter.Report, error) {
		out, err := h.create(p.file)
		if err != nil {
			return deadletter.Report{}, err
		}
		n, err := x.letters.Export(ctx, out, deadletter.Filter{IDs: []string{id}})
		if err = errors.Join(err, out.Close()); err == nil && n == 0 {
			err = deadletter.ErrNoLetter
		}
		if err != nil {
			return deadletter.Report{}, err
		}
		return begin(ctx, progress)
	}
}
