package main

const dlqUsage = `Usage: redelivery dlq <verb> [flags] [topic]

Shows, replays, exports, purges and imports dead letters ("letters").

  redelivery dlq                         on a terminal: asks what to do
  redelivery dlq list public/default     topics of a namespace and their backlog
  redelivery dlq groups orders-sub-DLQ   letters by cause
  redelivery dlq peek orders-sub-DLQ     letters; acknowledges none
  redelivery dlq replay orders-sub-DLQ   preview; with -yes it replays
  redelivery dlq export orders-sub-DLQ   letters as lines of JSON
  redelivery dlq purge orders-sub-DLQ    preview; with -yes it purges
  redelivery dlq import orders-sub-DLQ   bring back what export or purge wrote
  redelivery dlq unsubscribe orders-sub-DLQ   remove the tool's subscription

Which letters, for groups, peek, replay, export and purge:
  -group a1b2c3d4e5                 of this group; may be repeated
  -id 12:3:0, -key customer-7       this letter, this key; may be repeated
  -property name=value              with this property; may be repeated, all
                                    must match
  -after 2h, -before 2006-01-02     died after or before: a time ago, or a date
  -subscription redelivery          on which replay and purge acknowledge, and
                                    which unsubscribe removes
list:
  -all                              also other topics whose first message is a
                                    dead letter
peek:
  -n 10                             how many; 0 for all
  -payload                          payloads too, decoded by their schema
replay:
  -to retry                         to the retry topic, for the subscription
                                    that failed; or -to origin: to the topic of
                                    origin, for all its subscriptions
  -namespace tenant/namespace       letters may go back to this namespace too;
                                    may be repeated
  -others                           with -to origin: do not ask whether other
                                    subscriptions may get the letters too
  -topic name                       to this topic instead; a name without a
                                    namespace is of the dead letters' namespace
  -routing same                     to the partition that a letter came from; or
                                    as producers do: java, murmur3 or go
  -canary 10                        replay ten first; the rest when these are
                                    processed
  -canary-timeout 10m               how long to wait for the canary
  -max 100, -rate 50                at most 100 letters in all, 50 a second
  -max-replays 3                    skip letters replayed this often before
  -new                              abandon an unfinished replay, begin another
export, purge:
  -o file                           the file to write; export's default: stdout
  -no-export                        purge without a file
import:
  -i file, -skip 40                 the file to read; lines to skip
replay, purge, import, unsubscribe:
  -any-topic                        even if the topic does not look like a dead
                                    letter topic
  -yes                              do it; without -yes, only show a preview
Connection, by default from PULSAR_URL, PULSAR_ADMIN_URL and client.conf, which
PULSAR_CLIENT_CONF names:
  -url pulsar://localhost:6650, -admin-url http://localhost:8080
  -auth-plugin name, -auth-params params
  -tls-trust-cert-path file, -tls-allow-insecure,
  -tls-enable-hostname-verification
  -encryption-private-key file, -encryption-public-key file,
  -encryption-key-name name         for encrypted letters
Output:
  -json                             as JSON, for programs
  -v                                the client's log, on stderr

To continue an interrupted replay or purge, run the same command again.
Exit codes: 0 for success; 1 for an error, an interruption or a canary that
failed again; 2 for a wrong command line.
`
