// franz-go-suite BOOTSTRAP: franz-go's kgo and kadm, as an application uses them.
// Prints "ok CASE", "not ok CASE WHY", "skip CASE WHY".
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	seed string
	uid  string
	adm  *kadm.Client
)

const t0 = int64(1_700_000_000_000)

func equal(what string, wanted, got any) error {
	if !reflect.DeepEqual(wanted, got) {
		return fmt.Errorf("%s: got %.200v, not %.200v", what, got, wanted)
	}
	return nil
}

func client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seed), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(30)}, opts...)...)
}

func topic(ctx context.Context, name string, partitions int32, configs map[string]*string) (string, error) {
	t := fmt.Sprintf("go-%s-%s", name, uid)
	r, err := adm.CreateTopic(ctx, partitions, 1, configs, t)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		return t, err
	}
	return t, served(ctx, t)
}

// served waits until each partition answers.
func served(ctx context.Context, t string) (err error) {
	for i := 0; i < 100; i++ {
		var l kadm.ListedOffsets
		if l, err = adm.ListEndOffsets(ctx, t); err == nil {
			if err = l.Error(); err == nil {
				return nil
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

func produce(ctx context.Context, records []*kgo.Record, opts ...kgo.Opt) error {
	cl, err := client(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	// kgo.RecordDeliveryTimeout counts from a record's own timestamp, and these are old
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return cl.ProduceSync(ctx, records...).FirstErr()
}

func fill(ctx context.Context, t string, partitions, a, b int) error {
	var l []*kgo.Record
	for i := a; i < b; i++ {
		l = append(l, &kgo.Record{Topic: t, Partition: int32(i % partitions), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%d", i), Timestamp: time.UnixMilli(t0 + int64(i))})
	}
	return produce(ctx, l)
}

func read(ctx context.Context, t string, partitions, n int, from kgo.Offset, opts ...kgo.Opt) ([]*kgo.Record, error) {
	m := map[int32]kgo.Offset{}
	for p := 0; p < partitions; p++ {
		m[int32(p)] = from
	}
	cl, err := client(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t: m}))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var got []*kgo.Record
	for len(got) < n {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			return got, fmt.Errorf("read %d of %d: %w", len(got), n, err)
		}
		got = append(got, f.Records()...)
	}
	short, cancel2 := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel2()
	return append(got, cl.PollFetches(short).Records()...), nil
}

func show(r *kgo.Record) string {
	b := func(v []byte) string {
		switch {
		case v == nil:
			return "null"
		case len(v) > 40:
			return fmt.Sprintf("%d:%x", len(v), v[len(v)-20:])
		}
		return fmt.Sprintf("%q", v)
	}
	s := fmt.Sprintf("%d %s=%s @%d", r.Offset, b(r.Key), b(r.Value), r.Timestamp.UnixMilli())
	for _, h := range r.Headers {
		s += " " + h.Key + ":" + b(h.Value)
	}
	return s
}

func roundTrip(ctx context.Context, acks string, codec string) error {
	t, err := topic(ctx, codec+acks, 1, nil)
	if err != nil {
		return err
	}
	noise := make([]byte, 3000)
	mrand.New(mrand.NewSource(7)).Read(noise)
	values := [][]byte{nil, {}, []byte(strings.Repeat("a sentence that compresses well; ", 200)), noise, []byte("värde"), []byte("x"), make([]byte, 50)}
	var l []*kgo.Record
	for i := 0; i < 40; i++ {
		r := &kgo.Record{Topic: t, Value: values[i%7], Timestamp: time.UnixMilli(t0 + int64(i*7919%1000))}
		switch i % 5 {
		case 0:
		case 1:
			r.Key = []byte{}
		default:
			r.Key = fmt.Appendf(nil, "key-%d", i)
		}
		if i%3 == 0 {
			for _, h := range []kgo.RecordHeader{{Key: "h", Value: []byte("one")}, {Key: "h", Value: []byte("two")}, {Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "h", Value: []byte("one")}} {
				r.Headers = append(r.Headers, h)
			}
		}
		l = append(l, r)
	}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	opts := []kgo.Opt{kgo.ProducerBatchCompression(codecs[codec]), kgo.ProducerLinger(20 * time.Millisecond)}
	switch acks {
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	if err := produce(ctx, l, opts...); err != nil {
		return err
	}
	if acks != "0" {
		if err := equal("acknowledged offset", int64(39), l[39].Offset); err != nil {
			return err
		}
	}
	got, err := read(ctx, t, 1, 40, kgo.NewOffset().AtStart())
	if err != nil {
		return err
	}
	if err := equal("records", 40, len(got)); err != nil {
		return err
	}
	for i, r := range got {
		l[i].Offset = int64(i)
		if err := equal(fmt.Sprint("record ", i), show(l[i]), show(r)); err != nil {
			return err
		}
		if err := equal("timestamp type", int8(0), r.Attrs.TimestampType()); err != nil {
			return err
		}
	}
	return nil
}

func many(ctx context.Context) error {
	t, err := topic(ctx, "many", 4, nil)
	if err != nil {
		return err
	}
	const n = 20000
	if err := fill(ctx, t, 4, 0, n); err != nil {
		return err
	}
	got, err := read(ctx, t, 4, n, kgo.NewOffset().AtStart())
	if err != nil {
		return err
	}
	next := []int{0, 1, 2, 3}
	for _, r := range got {
		if err := equal(fmt.Sprint("partition ", r.Partition), fmt.Sprint(next[r.Partition], " ", next[r.Partition]/4), fmt.Sprint(string(r.Value), " ", r.Offset)); err != nil {
			return err
		}
		next[r.Partition] += 4
	}
	return equal("records", n, len(got))
}

func big(ctx context.Context) error {
	t, err := topic(ctx, "big", 1, nil)
	if err != nil {
		return err
	}
	v := make([]byte, 900_000)
	mrand.New(mrand.NewSource(3)).Read(v)
	for i := 0; i < 4; i++ {
		if err := produce(ctx, []*kgo.Record{{Topic: t, Value: v}}); err != nil {
			return err
		}
	}
	err = produce(ctx, []*kgo.Record{{Topic: t, Value: make([]byte, 1_500_000)}}, kgo.ProducerBatchMaxBytes(2_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if !errors.Is(err, kerr.MessageTooLarge) {
		return fmt.Errorf("a record larger than max.message.bytes: %v", err)
	}
	got, err := read(ctx, t, 1, 4, kgo.NewOffset().AtStart(), kgo.FetchMaxPartitionBytes(1000))
	if err != nil {
		return err
	}
	for _, r := range got {
		if !bytes.Equal(r.Value, v) {
			return errors.New("a big value changed")
		}
	}
	return equal("records", 4, len(got))
}

func offsets(ctx context.Context) error {
	t, err := topic(ctx, "offsets", 2, nil)
	if err != nil {
		return err
	}
	if err := fill(ctx, t, 2, 0, 100); err != nil {
		return err
	}
	at := func(l kadm.ListedOffsets, err error) string {
		s := ""
		for p := int32(0); p < 2; p++ {
			o, _ := l.Lookup(t, p)
			s += fmt.Sprint(o.Offset, " ")
			if o.Err != nil {
				err = o.Err
			}
		}
		if err != nil {
			return err.Error()
		}
		return s
	}
	r1, e1 := adm.ListStartOffsets(ctx, t)
	r2, e2 := adm.ListEndOffsets(ctx, t)
	r3, e3 := adm.ListOffsetsAfterMilli(ctx, t0+41, t)
	r4, e4 := adm.ListCommittedOffsets(ctx, t)
	r5, e5 := adm.ListMaxTimestampOffsets(ctx, t)
	for i, x := range []struct{ wanted, got string }{{"0 0 ", at(r1, e1)}, {"50 50 ", at(r2, e2)}, {"21 20 ", at(r3, e3)}, {"50 50 ", at(r4, e4)}, {"49 49 ", at(r5, e5)}} {
		if err := equal(fmt.Sprint("offsets ", i), x.wanted, x.got); err != nil {
			return err
		}
	}
	for what, from := range map[string]struct {
		o     kgo.Offset
		first string
		n     int
	}{
		"from an offset": {kgo.NewOffset().At(48), "48 96", 2}, "near the end": {kgo.NewOffset().AtEnd().Relative(-3), "47 94", 3},
		"after a time": {kgo.NewOffset().AfterMilli(t0 + 90), "45 90", 5}, "out of range": {kgo.NewOffset().At(1000), "0 0", 50},
	} {
		got, err := read(ctx, t, 1, from.n, from.o, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := equal(what, fmt.Sprint(from.n, " ", from.first), fmt.Sprint(len(got), " ", got[0].Offset, " ", string(got[0].Value))); err != nil {
			return err
		}
	}
	return nil
}

func administration(ctx context.Context) error {
	ms := "3600000"
	t, err := topic(ctx, "admin", 2, map[string]*string{"retention.ms": &ms})
	if err != nil {
		return err
	}
	l, err := adm.ListTopics(ctx, t)
	if err != nil {
		return err
	}
	if err := equal("partitions", 2, len(l[t].Partitions)); err != nil {
		return err
	}
	if all, err := adm.ListTopics(ctx); err != nil || !all.Has(t) {
		return fmt.Errorf("not listed: %v", err)
	}
	if r, err := adm.CreateTopic(ctx, 1, 1, nil, t); !errors.Is(err, kerr.TopicAlreadyExists) && !errors.Is(r.Err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("created twice: %v %v", err, r.Err)
	}
	if r, err := adm.UpdatePartitions(ctx, 5, t); err != nil || r.Error() != nil {
		return fmt.Errorf("UpdatePartitions: %v %v", err, r.Error())
	}
	for i := 0; ; i++ {
		if l, err = adm.ListTopics(ctx, t); err == nil && len(l[t].Partitions) == 5 {
			break
		}
		if i == 30 {
			return fmt.Errorf("%d partitions, not 5: %v", len(l[t].Partitions), err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err := served(ctx, t); err != nil {
		return err
	}
	retention := func() string {
		rc, err := adm.DescribeTopicConfigs(ctx, t)
		if err != nil {
			return err.Error()
		}
		for _, c := range rc[0].Configs {
			if c.Key == "retention.ms" {
				return c.MaybeValue()
			}
		}
		return fmt.Sprint("none: ", rc[0].Err)
	}
	if err := equal("retention.ms", ms, retention()); err != nil {
		return err
	}
	two := "7200000"
	for _, x := range []struct {
		c      kadm.AlterConfig
		wanted string
	}{{kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: &two}, two}, {kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"}, "604800000"}} {
		r, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{x.c}, t)
		if err != nil || r[0].Err != nil {
			return fmt.Errorf("AlterTopicConfigs: %v %v", err, r)
		}
		for i := 0; i < 20 && retention() != x.wanted; i++ {
			time.Sleep(100 * time.Millisecond)
		}
		if err := equal("retention.ms altered", x.wanted, retention()); err != nil {
			return err
		}
	}
	if err := fill(ctx, t, 5, 0, 50); err != nil {
		return err
	}
	var o kadm.Offsets
	o.AddOffset(t, 0, 4, -1)
	if r, err := adm.DeleteRecords(ctx, o); err != nil || r.Error() != nil {
		return fmt.Errorf("DeleteRecords: %v %v", err, r.Error())
	} else if err := equal("low watermark", int64(4), r[t][0].LowWatermark); err != nil {
		return err
	}
	if got, err := read(ctx, t, 1, 6, kgo.NewOffset().AtStart()); err != nil || got[0].Offset != 4 {
		return fmt.Errorf("after DeleteRecords: %d records, %v", len(got), err)
	}
	m, err := adm.BrokerMetadata(ctx)
	if err != nil || m.Cluster == "" || len(m.Brokers) == 0 {
		return fmt.Errorf("BrokerMetadata: %+v %v", m, err)
	}
	if _, err := adm.ApiVersions(ctx); err != nil {
		return err
	}
	if r, err := adm.DeleteTopics(ctx, t); err != nil || r.Error() != nil {
		return fmt.Errorf("DeleteTopics: %v %v", err, r.Error())
	}
	if r, err := adm.DeleteTopics(ctx, "go-none-"+uid); err != nil || !errors.Is(r["go-none-"+uid].Err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("deleted a topic that is not there: %v %v", err, r)
	}
	for i := 0; ; i++ {
		all, err := adm.ListTopics(ctx)
		if err == nil && !all.Has(t) {
			return nil
		}
		if i == 30 {
			return fmt.Errorf("still listed: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

type seen struct {
	sync.Mutex
	times  map[string]int
	values map[string]bool
}

func newSeen() *seen { return &seen{times: map[string]int{}, values: map[string]bool{}} }
func (s *seen) n() int {
	s.Lock()
	defer s.Unlock()
	return len(s.times)
}

type member struct {
	name string
	cl   *kgo.Client
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	owned map[int32]bool
	err   error
	again int // records whose commit a rebalance refused
}

func newMember(name, t, g string, s *seen, opts ...kgo.Opt) (*member, error) {
	m := &member{name: name, owned: map[int32]bool{}, done: make(chan struct{})}
	lose := func(_ context.Context, _ *kgo.Client, l map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range l[t] {
			delete(m.owned, p)
		}
	}
	cl, err := client(append([]kgo.Opt{kgo.ClientID(name), kgo.ConsumerGroup(g), kgo.ConsumeTopics(t), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, l map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range l[t] {
				m.owned[p] = true
			}
		}), kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose)}, opts...)...)
	if err != nil {
		return nil, err
	}
	m.cl = cl
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			f := cl.PollFetches(ctx)
			for _, e := range f.Errors() {
				if !errors.Is(e.Err, context.Canceled) {
					m.fail(e.Err)
				}
			}
			l := f.Records()
			s.Lock()
			for _, r := range l {
				s.times[fmt.Sprint(r.Partition, ":", r.Offset)]++
				s.values[string(r.Value)] = true
			}
			s.Unlock()
			if len(l) > 0 {
				c, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if err := cl.CommitRecords(c, l...); errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) {
					m.again += len(l)
				} else if err != nil {
					m.fail(fmt.Errorf("commit: %w", err))
				}
				cancel()
			}
			cl.AllowRebalance()
		}
		cl.CloseAllowingRebalance()
	}()
	return m, nil
}

func (m *member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
}

func (m *member) leave() error {
	m.stop()
	select {
	case <-m.done:
		return nil
	case <-time.After(15 * time.Second):
		return errors.New(m.name + " does not close")
	}
}

func until(seconds int, f func() (bool, string)) error {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for {
		ok, why := f()
		if ok {
			return nil
		}
		if time.Now().After(end) {
			return errors.New(why)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func owned(members []*member, partitions, each int) error {
	return until(30, func() (bool, string) {
		all, n, least, s := map[int32]bool{}, 0, partitions, ""
		for _, m := range members {
			m.mu.Lock()
			var l []int
			for p := range m.owned {
				all[p] = true
				l = append(l, int(p))
			}
			if m.err != nil {
				s += m.err.Error()
				least = -1
			}
			m.mu.Unlock()
			sort.Ints(l)
			n += len(l)
			least = min(least, len(l))
			s += fmt.Sprint(m.name, l, " ")
		}
		return len(all) == partitions && n == partitions && least >= each, "not every partition is owned once: " + s
	})
}

func group(ctx context.Context, name string, opts ...kgo.Opt) error {
	g := "go-" + name + "-" + uid
	t, err := topic(ctx, name, 6, nil)
	if err != nil {
		return err
	}
	if err := fill(ctx, t, 6, 0, 600); err != nil {
		return err
	}
	s := newSeen()
	var members []*member
	defer func() {
		for _, m := range members {
			m.stop()
		}
	}()
	for i := 0; i < 3; i++ {
		m, err := newMember(fmt.Sprint("member-", i), t, g, s, opts...)
		if err != nil {
			return err
		}
		members = append(members, m)
	}
	if err := owned(members, 6, 2); err != nil {
		return err
	}
	d, err := adm.DescribeGroups(ctx, g)
	if err != nil {
		return err
	}
	if err := equal("group", "3 Stable", fmt.Sprint(len(d[g].Members), " ", d[g].State)); err != nil {
		return err
	}
	if l, err := adm.ListGroups(ctx); err != nil || l[g].Group != g {
		return fmt.Errorf("the group is not listed: %v", err)
	}
	read := func(n int) error {
		return until(20, func() (bool, string) { return s.n() >= n, fmt.Sprintf("read %d of %d", s.n(), n) })
	}
	if err := fill(ctx, t, 6, 600, 1200); err != nil {
		return err
	}
	if err := read(1200); err != nil {
		return err
	}
	leaver := members[1]
	members = append(members[:1:1], members[2])
	if err := leaver.leave(); err != nil {
		return err
	}
	if err := owned(members, 6, 3); err != nil {
		return fmt.Errorf("after one left: %w", err)
	}
	if err := fill(ctx, t, 6, 1200, 1800); err != nil {
		return err
	}
	if err := read(1800); err != nil {
		return fmt.Errorf("after one left: %w", err)
	}
	for _, m := range members {
		if err := m.leave(); err != nil {
			return err
		}
		if m.err != nil {
			return m.err
		}
	}
	twice, refused := 0, leaver.again
	for _, n := range s.times {
		twice += n - 1
	}
	for _, m := range members {
		refused += m.again
	}
	if err := equal("different values", 1800, len(s.values)); err != nil {
		return err
	}
	if twice > refused { // only what was read while a rebalance refused the commit may be read again
		return fmt.Errorf("%d records read again, though the commits of only %d were refused", twice, refused)
	}
	committed := func() (int64, error) {
		o, err := adm.FetchOffsets(ctx, g)
		sum := int64(0)
		o.Each(func(r kadm.OffsetResponse) { sum += r.At })
		return sum, err
	}
	if n, err := committed(); err != nil || n != 1800 {
		return fmt.Errorf("committed %d of 1800: %v", n, err)
	}
	if lag, err := adm.Lag(ctx, g); err != nil || lag[g].Lag.Total() != 0 {
		return fmt.Errorf("lag %d: %v", lag[g].Lag.Total(), err)
	}
	if err := fill(ctx, t, 6, 1800, 1860); err != nil {
		return err
	}
	later := newSeen()
	m, err := newMember("member-9", t, g, later, opts...)
	if err != nil {
		return err
	}
	members = append(members, m)
	if err := until(20, func() (bool, string) {
		return later.n() >= 60, fmt.Sprintf("the fresh member read %d of 60", later.n())
	}); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	if err := m.leave(); err != nil {
		return err
	}
	if err := equal("read by the fresh member", 60, later.n()); err != nil {
		return err
	}
	var o kadm.Offsets
	o.AddOffset(t, 0, 7, -1)
	if err := adm.CommitAllOffsets(ctx, g, o); err != nil {
		return fmt.Errorf("commit by the admin client: %w", err)
	}
	if f, err := adm.FetchOffsets(ctx, g); err != nil || f[t][0].At != 7 {
		return fmt.Errorf("fetched %d, not 7: %v", f[t][0].At, err)
	}
	if r, err := adm.DeleteOffsets(ctx, g, kadm.TopicsSet{t: {0: {}}}); err != nil || r[t][0] != nil {
		return fmt.Errorf("DeleteOffsets: %v %v", err, r)
	}
	if f, err := adm.FetchOffsets(ctx, g); err != nil || len(f[t]) != 5 {
		return fmt.Errorf("%d committed partitions, not 5: %v", len(f[t]), err)
	}
	if r, err := adm.DeleteGroups(ctx, g); err != nil || r[g].Err != nil {
		return fmt.Errorf("DeleteGroups: %v %v", err, r[g].Err)
	}
	if l, err := adm.ListGroups(ctx); err != nil || l[g].Group == g {
		return fmt.Errorf("the group is still listed: %v", err)
	}
	return nil
}

func main() {
	seed = os.Args[1]
	id := make([]byte, 5)
	rand.Read(id)
	uid = fmt.Sprintf("%x", id)
	cl, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ClientID("suite-admin"))
	if err != nil {
		fmt.Println("not ok client", err)
		os.Exit(1)
	}
	adm = kadm.NewClient(cl)
	type test struct {
		name string
		f    func(context.Context) error
	}
	var tests []test
	for _, acks := range []string{"0", "1", "all"} {
		for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			tests = append(tests, test{"produce-acks-" + acks + "-" + codec, func(ctx context.Context) error { return roundTrip(ctx, acks, codec) }})
		}
	}
	tests = append(tests, test{"many-records-in-order", many}, test{"big-records", big}, test{"offsets", offsets}, test{"admin", administration},
		test{"group-of-three-one-leaves", func(ctx context.Context) error { return group(ctx, "group") }},
		test{"group-of-three-eager", func(ctx context.Context) error { return group(ctx, "eager", kgo.Balancers(kgo.RangeBalancer())) }})
	bad := 0
	for _, t := range tests {
		if !strings.Contains(t.name, os.Getenv("ONLY")) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		done := make(chan error, 1)
		go func() { done <- t.f(ctx) }()
		select {
		case err = <-done:
		case <-time.After(65 * time.Second):
			err = errors.New("not done in 65 s")
		}
		cancel()
		if err != nil {
			bad++
			fmt.Println("not ok", t.name, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			fmt.Println("ok", t.name)
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
}
