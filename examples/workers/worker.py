#!/usr/bin/env python3
"""A worker for one queue, with the standard library only. docs/worker-protocol.md says what it keeps to, and why."""
import itertools, json, os, random, signal, threading, time, urllib.error, urllib.request

nodes = itertools.cycle(os.environ.get("CARILLON_ADDR", "127.0.0.1:7400").split(","))
QUEUE, ROOM = os.environ.get("QUEUE", "mail"), int(os.environ.get("CONCURRENCY", "4"))
NAME, LEASE = f"{os.uname().nodename}-{os.getpid()}", float(os.environ.get("LEASE", "30"))  # as the cluster has it
held, leaving, session = {}, threading.Event(), ""  # held: runs by fence, until their results are answered
clock = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine is suspended

def work(run):  # yours. It returns soon after run["ended"] is set, and raises what went wrong
    run["ended"].wait(run["data"].get("seconds", 0))
    return f"sent to {run['data'].get('to')}"

def call(verb, limit, message):  # once, to the next node. None: nobody can say, and the same may be sent again
    request = urllib.request.Request(f"http://{next(nodes)}/api/v1/workers:{verb}?queue={QUEUE}",
                                     json.dumps(message).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=limit) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        return {"refused": json.load(e).get("code")} if e.code in (400, 401, 403, 404, 409, 413) else None
    except (OSError, ValueError):
        return None

def attempt(run):
    result = {"claim": run["claim"], "outcome": "returned"}
    if not leaving.is_set() and clock() < run["until"]:
        print(run["run_id"], "started with fence", run["fence"], flush=True)
        try:
            result.update(outcome="succeeded", output=work(run))
        except Exception as e:
            result.update(outcome="failed", error=repr(e))
        if run["why"]:
            result.update(outcome="canceled" if run["why"] == "canceled" else "failed", error=run["why"])
    while run["why"] != "gone" and not call("report", 30, {"session": session, "results": [result]}):
        time.sleep(random.uniform(0.1, 1))
    del held[run["fence"]]

def heartbeats():  # every second, which is also how soon a lease that has ended is noticed
    while not time.sleep(1):
        runs, sent = list(held.values()), clock()
        said = runs and call("heartbeat", LEASE / 5, {"session": session, "runs": [{"claim": r["claim"]} for r in runs]})
        for run, item in zip(runs, (said or {}).get("runs", [])):
            run["until"] = sent + LEASE * 2 / 3 if item["status"] == "ok" else run["until"]
            run["why"] = {"ok": run["why"], "stop": item.get("why")}.get(item["status"], "gone")
        for run in runs:
            if clock() >= run["until"]:
                run["why"] = run["why"] or "lease lost"
            if run["why"]:
                run["ended"].set()

signal.signal(signal.SIGTERM, lambda *_: leaving.set())
threading.Thread(target=heartbeats, daemon=True).start()
last = drained = False
while not drained:
    last, room, sent = leaving.is_set(), ROOM - len(held), clock()
    if room <= 0 and not last:
        time.sleep(0.05)
        continue
    answer = call("poll", 8, {"worker": NAME, "session": session, "leave": last, "wait": "0s" if last else "3s",
                              "free": room if session and not last else 0})
    if not answer or "refused" in answer:
        session = "" if answer and answer["refused"] in ("session_unknown", "worker_forked") else session
        time.sleep(random.uniform(0.1, 1))
        continue
    for run in answer["runs"]:
        if run["fence"] not in held:
            held[run["fence"]] = dict(run, until=sent + LEASE * 2 / 3, ended=threading.Event(), why="")
            threading.Thread(target=attempt, args=(held[run["fence"]],)).start()
    session = answer["session"]  # not before the runs were taken: it says that they are
    drained = last and not answer["runs"] and not answer.get("opened")
