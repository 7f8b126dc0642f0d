package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
)

// logged is the work that faults of the log disturb. It has a log of attempts.
var logged = work{Messages: 1000, Min: time.Second, Log: true}

var logFaults = []fault{
	{set: chaos, name: "log unloaded", what: "the topic of the log of attempts is unloaded every second, ten times",
		types: allTypes, work: logged, make: repeat(10, time.Second, func(ctx context.Context, t *trial) error {
			return t.log(ctx, "PUT", "/unload", nil)
		})},
	{set: chaos, name: "log deleted",
		what:  "the topic of the log of attempts is deleted by force every two seconds, five times",
		types: allTypes, work: logged, make: repeat(5, 2*time.Second, func(ctx context.Context, t *trial) error {
			return t.log(ctx, "DELETE", "?force=true", nil)
		})},
	{set: chaos, name: "log full",
		what:  "the log's backlog quota, producer_exception, is exceeded for five seconds or more",
		types: allTypes, work: logged, needs: killable, logFails: true,
		make: func(ctx context.Context, t *trial) error {
			return overQuota(ctx, t, 500, "until the log fails", func(n counts) bool { return n.logFailures > 0 })
		}},
	{set: chaos, name: "log slow",
		what:  "the log's data takes 1.5 s more, at 20 kB/s, until each message is delivered, and for at least 10 s",
		types: allTypes, work: logged, logFails: true, make: func(ctx context.Context, t *trial) error {
			t.logProxy.Slow(1500*time.Millisecond, 20_000)
			sleep(ctx, 10*time.Second)
			err := t.until(ctx, "until all are delivered",
				func(n counts) bool { return n.delivered == t.work.Messages && n.logFailures > 0 })
			t.logProxy.Slow(0, 0)
			return err
		}},
	{set: chaos, name: "log not allowed",
		what:  "for 10 s the consumer's role has no permission for the log's topic, which is unloaded",
		types: allTypes, work: logged, needs: guarded, logFails: true, make: func(ctx context.Context, t *trial) error {
			sleep(ctx, time.Second)
			if err := t.log(ctx, "DELETE", "/permissions/"+role, nil); err != nil {
				return err
			}
			if err := t.log(ctx, "PUT", "/unload", nil); err != nil {
				return err
			}
			if err := t.until(ctx, "until the log fails",
				func(n counts) bool { return n.logFailures > 0 }); err != nil {
				return err
			}
			sleep(ctx, 10*time.Second)
			return t.log(ctx, "POST", "/permissions/"+role, allowed)
		}},
}

func (w work) logTopic() string { return attempts.Topic(w.Topic, subscription) }

// log calls the admin API for the log's topic.
func (t *trial) log(ctx context.Context, method, path string, body any) error {
	return patiently(ctx, func() error { return t.broker.callAdmin(ctx, method, t.work.logTopic()+path, body, nil) })
}

// overQuota gives the namespace a backlog quota that its topics exceed. It deletes the quota five seconds after reached
// returned true.
func overQuota(ctx context.Context, t *trial, bytes int, what string, reached func(counts) bool) error {
	const path = "namespaces/public/default/backlogQuota?backlogQuotaType=destination_storage"
	quota := map[string]any{"limitSize": bytes, "limitTime": -1, "policy": "producer_exception"}
	if err := t.broker.callAdmin(ctx, "POST", path, quota, nil); err != nil {
		return err
	}
	err := t.until(ctx, what, reached)
	if err == nil {
		sleep(ctx, 5*time.Second)
	}
	return errors.Join(err, t.broker.callAdmin(context.WithoutCancel(ctx), "DELETE", path, nil, nil))
}

// withLog returns options for a log of attempts, if the work has one. The log has a client of its own.
func (c *consumer) withLog(w work) ([]redelivery.Option, error) {
	if !w.Log {
		return nil, nil
	}
	own := w
	own.URL = w.LogURL
	client, err := newClient(own)
	if err != nil {
		return nil, err
	}
	c.logClient = client
	return []redelivery.Option{redelivery.WithClient(client), redelivery.WithAttemptLog(redelivery.AttemptLog{}),
		redelivery.WithObserver(redelivery.Observer{Failed: func(f redelivery.Failed) {
			if f.Operation == "attempt log" {
				c.logFailures.Add(1)
			}
		}})}, nil
}

// logIsBack waits, after all messages are settled, until the log is empty too.
func (t *trial) logIsBack(ctx context.Context) error {
	if !t.work.Log || t.local == nil { // this process cannot read the logs of other processes
		return nil
	}
	for end := time.Now().Add(time.Minute); ; sleep(ctx, 100*time.Millisecond) {
		s := t.local.AttemptLog().Stats()
		if s.Lag == 0 && s.Records == 0 {
			break
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("the log has %d records of settled messages, and lags by %v", s.Records, s.Lag)
		}
	}
	if n := t.progress().logFailures; t.fault.logFails && n == 0 {
		return errors.New("the consumer did not report that the log failed")
	}
	return nil
}

// role is the consumer's role on a guarded broker.
const role = "app"

var allowed = []string{"produce", "consume"}

// startGuarded starts a broker that checks the permissions of roles. A client without a role may do everything. token
// authenticates the consumer's role.
func startGuarded(ctx context.Context) (b *broker, stop func(), token string, err error) {
	secret := []byte(rand.Text() + rand.Text())
	env := []string{"PULSAR_NAME=chaos-guarded", "PULSAR_CONF_authenticationEnabled=true",
		"PULSAR_CONF_authorizationEnabled=true",
		"PULSAR_CONF_authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
		"PULSAR_CONF_tokenSecretKey=data:;base64," + base64.StdEncoding.EncodeToString(secret),
		"PULSAR_CONF_anonymousUserRole=root", "PULSAR_CONF_superUserRoles=root"}
	if b, err = startBroker(ctx, env, "start"); err != nil {
		return nil, nil, "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	token = encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(fmt.Appendf(nil, `{"sub":%q}`, role))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(token))
	return b, func() { _, _ = scriptWith(context.WithoutCancel(ctx), env, "stop") }, token + "." + encode(mac.Sum(nil)),
		nil
}

// allow lets the consumer's role use the topic and its log.
func (t *trial) allow(ctx context.Context) error {
	if err := t.log(ctx, "PUT", "", nil); err != nil {
		return err
	}
	for _, topic := range []string{t.work.Topic, t.work.logTopic()} {
		if err := t.broker.callAdmin(ctx, "POST", topic+"/permissions/"+role, allowed, nil); err != nil {
			return err
		}
	}
	return nil
}
