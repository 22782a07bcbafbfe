// Adds of 1 to Redis counters by a Go client, in a closed loop, for SECONDS; prints one line of JSON.
//
//	hotcount-peers-go PORT rueidis|rueidis-delayed WIDTH SECONDS KEYS SEED
//
// WIDTH goroutines share one client. loadtest/peers/native.py builds and runs it; the keys are those
// of hotcount's counters. Exit code: 0, 1 where an add failed, 2 on bad usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// Adds of each goroutine before the clock starts: connections are made, buffers have their size.
	warm    = 5
	draws   = 10_007
	timeout = 30 * time.Second
)

type add func(key string) error

type outcome struct {
	Adds     int64   `json:"adds"`
	WarmAdds int64   `json:"warm_adds"`
	Seconds  float64 `json:"seconds"`
}

func rueidisWith(address string, delay time.Duration) (add, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:      []string{address},
		ConnWriteTimeout: timeout,
		MaxFlushDelay:    delay,
	})
	if err != nil {
		return nil, err
	}
	return func(key string) error {
		return client.Do(context.Background(), client.B().Incr().Key(key).Build()).Error()
	}, nil
}

// Its defaults: calls of concurrent goroutines are pipelined by themselves, and sent at once.
func openRueidis(address string, _ int) (add, error) {
	return rueidisWith(address, 0)
}

// The setting for throughput: it waits for more calls before it sends, which two or four callers pay
// for. The delays are those in which it was fastest here.
func openRueidisDelayed(address string, width int) (add, error) {
	if width <= 64 {
		return rueidisWith(address, 20*time.Microsecond)
	}
	return rueidisWith(address, 100*time.Microsecond)
}

var openers = map[string]func(string, int) (add, error){
	"rueidis":         openRueidis,
	"rueidis-delayed": openRueidisDelayed,
}

// keysOf are what a goroutine adds to, over and over again.
func keysOf(keys int, seed int64) []string {
	random := rand.New(rand.NewSource(seed))
	drawn := make([]string, draws)
	for i := range drawn {
		drawn[i] = "count:k" + strconv.Itoa(random.Intn(keys))
	}
	return drawn
}

func run(call add, width, keys int, seconds float64, seed int64) (outcome, error) {
	var (
		ready, done sync.WaitGroup
		adds        atomic.Int64
		stopped     atomic.Bool
		failed      = make(chan error, width)
		gate        = make(chan struct{})
	)
	work := func(caller int) error {
		names := keysOf(keys, seed*10_000+int64(caller))
		var err error
		for i := 0; i < warm && err == nil; i++ {
			err = call(names[i])
		}
		ready.Done()
		if err != nil {
			return err
		}
		<-gate
		count := int64(0)
		for i := 0; ; i++ {
			if err := call(names[i%draws]); err != nil {
				return err
			}
			count++
			if stopped.Load() {
				break
			}
		}
		adds.Add(count)
		return nil
	}
	ready.Add(width)
	for caller := range width {
		done.Go(func() {
			if err := work(caller); err != nil {
				failed <- err
			}
		})
	}
	ready.Wait()
	start := time.Now()
	time.AfterFunc(time.Duration(seconds*float64(time.Second)), func() { stopped.Store(true) })
	close(gate)
	done.Wait()
	elapsed := time.Since(start).Seconds()
	select {
	case err := <-failed:
		return outcome{}, err
	default:
		return outcome{adds.Load(), int64(width * warm), elapsed}, nil
	}
}

func main() {
	if len(os.Args) != 7 || openers[os.Args[2]] == nil {
		usage()
	}
	width, badWidth := strconv.Atoi(os.Args[3])
	seconds, badSeconds := strconv.ParseFloat(os.Args[4], 64)
	keys, badKeys := strconv.Atoi(os.Args[5])
	seed, badSeed := strconv.ParseInt(os.Args[6], 10, 64)
	bad := errors.Join(badWidth, badSeconds, badKeys, badSeed)
	if bad != nil || width < 1 || seconds <= 0 || keys < 1 {
		usage()
	}
	call, err := openers[os.Args[2]]("127.0.0.1:"+os.Args[1], width)
	var measured outcome
	if err == nil {
		measured, err = run(call, width, keys, seconds, seed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: hotcount-peers-go PORT rueidis|rueidis-delayed WIDTH SECONDS KEYS SEED")
	os.Exit(2)
}
