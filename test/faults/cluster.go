package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// member is a broker of a cluster.
type member struct {
	env   []string
	admin string
}

// startCluster starts two brokers. The process of the first broker also has ZooKeeper and the bookie.
func startCluster(ctx context.Context) (*broker, func(), error) {
	name := cmp.Or(os.Getenv("PULSAR_NAME"), "faults") + "-cluster"
	first := &member{env: []string{"PULSAR_NAME=" + name, "PULSAR_CLUSTER=yes"}}
	second := &member{env: []string{"PULSAR_NAME=" + name + "-2", "PULSAR_JOIN=" + name,
		"PULSAR_CONF_metadataStoreSessionTimeoutMillis=10000"}}
	b := &broker{members: []*member{second, first}}
	stop := func() {
		for _, m := range b.members {
			_, _ = scriptWith(context.WithoutCancel(ctx), m.env, "stop")
		}
	}
	for _, m := range []*member{first, second} {
		one, err := startBroker(ctx, m.env, "start")
		if err != nil {
			stop()
			return nil, nil, err
		}
		m.admin = one.admin
	}
	// Clients look topics up by HTTP: in Pulsar's binary protocol, the first broker, a standalone one, names itself in
	// the answer to each lookup.
	b.url, b.admin = first.admin+","+strings.TrimPrefix(second.admin, "http://"), first.admin
	return b, stop, nil
}

// moveTopics moves all topics to the other broker, up to 15 times. At the third move it kills the broker that has the
// topics, and moves nothing until that broker is back.
func moveTopics(ctx context.Context, t *trial) error {
	var back chan error
	for i := range 15 {
		if sleep(ctx, 8*time.Second); ctx.Err() != nil || t.isOver(ctx) {
			break
		}
		t.show("%d of 15", i+1)
		if back == nil || len(back) > 0 {
			t.move(ctx, t.broker.members[i%2])
		}
		if i == 2 {
			sleep(ctx, 4*time.Second)
			t.noteFault("broker killed")
			second := t.broker.members[0]
			if _, err := scriptWith(ctx, second.env, "kill"); err != nil {
				return err
			}
			back = make(chan error, 1)
			go func() {
				_, err := startBroker(ctx, second.env, "start", "-keep")
				back <- err
			}()
		}
	}
	if back != nil {
		return <-back
	}
	return ctx.Err()
}

// move moves all topics to a broker, except those in bundles that cannot move at the moment.
func (t *trial) move(ctx context.Context, to *member) {
	t.noteFault("topics move")
	var bundles struct{ Boundaries []string }
	if err := t.broker.callAdmin(ctx, "GET", "namespaces/public/default/bundles", nil, &bundles); err != nil {
		fmt.Fprintln(os.Stderr, "faults: asking for the bundles:", err)
		return
	}
	for i := range bundles.Boundaries[1:] {
		path := fmt.Sprintf("namespaces/public/default/%s_%s/unload?destinationBroker=%s", bundles.Boundaries[i],
			bundles.Boundaries[i+1],
			strings.TrimPrefix(to.admin, "http://"))
		if err := t.broker.callAdmin(ctx, "PUT", path, nil, nil); err != nil {
			fmt.Fprintln(os.Stderr, "faults: moving a bundle:", err)
		}
	}
}
