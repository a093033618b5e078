"""Lets a node agree with the other members on who is suspended; see tacit.peer.agreement.

A thread exchanges sheets with all members of the operator's roster, which also shows who is there.
Votes are on disk before they are sent. When a roster is decided, the node switches to it.
"""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tacit.peer.agreement.protocol import Agreement, Rules
from tacit.peer.agreement.quorum import Electorate, Invalid
from tacit.peer.agreement.rosters import FederationRosters
from tacit.peer.agreement.signatures import make_signer, make_verifier
from tacit.peer.agreement.statements import Sheet, Signed, parse_sheet, to_json
from tacit.peer.agreement.vote_store import VoteStore
from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.member_channel import MemberChannel
from tacit.peer.node.node_state import NodeState
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.messages import Rejected
from tacit.peer.wire.transport import SERVICE

MIN_PAUSE = 0.02  # seconds between two rounds of sheets
MIN_TIMEOUT = 3.0  # of a call
LOG_SECONDS = 300.0  # between two log lines about one reason


def agreed_roster(folder: NodeFolder, base: Manifest) -> Manifest:
    """The newest roster that this node knows of: the operator's, or one that members agreed on."""
    if base.absence.seconds == math.inf:
        return base
    decision = _store(folder).load(base).decision
    return base if decision is None else FederationRosters(base).manifest(decision.change)


class RosterAgreement:
    """The part of a node that takes part in agreements, under one roster of the operator."""

    def __init__(self, state: NodeState, base: Manifest) -> None:
        folder, name, federation = state.folder, state.name, base.federation
        self.base, self._state, self._store = base, state, _store(folder)
        self._rosters = FederationRosters(base)
        verify = make_verifier(folder.ca(), federation)
        electorate = Electorate(tuple(base.names), self._rosters, verify, self._is_trusted)
        sign = make_signer(state.credentials.current, name, federation)
        rules = Rules(name, electorate, base.absence.seconds, sign, time.time)
        self._saved = self._store.load(base)
        self._agreement = Agreement(rules, self._saved, time.monotonic())
        self._lock = threading.RLock()
        self._wake, self._ended = threading.Event(), threading.Event()
        others = [member for member in base.members if member.name != name]
        self._channels = {member.name: MemberChannel(state, member) for member in others}
        self._calls: dict[str, Any] = {}  # that are not answered yet
        self._told: set[str] = set()  # members that know that this node has finished
        self._newer: set[str] = set()  # members with a newer roster of the operator
        self._thread = threading.Thread(target=self._run, name="agreement", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _is_trusted(self, signed: Signed[Any]) -> bool:
        fingerprint = certificate_info(signed.certificate.encode()).fingerprint
        return self._state.changes.log.accepts(signed.signer, fingerprint)

    def close(self) -> None:
        """End the thread and all calls."""
        self._ended.set()
        self._wake.set()
        self._thread.join()
        for channel in self._channels.values():
            channel.close()

    @property
    def problem(self) -> str:
        """Why the members cannot go on without a silent one; empty if nothing prevents it."""
        blocked = self._agreement.blocked
        return f"a member is silent, and the others cannot go on {blocked}" if blocked else ""

    def answer(self, caller: str, content: bytes) -> bytes:
        """Use a sheet from a member, and return this node's.

        Raises:
            ValueError: If it is no sheet.
            OSError: If a vote cannot be stored. The caller will repeat it.
        """
        return to_json(self._exchange(caller, parse_sheet(content)))

    def unfinished(self) -> set[str]:
        """Members that may still need this node, although it has finished."""
        with self._lock:
            agreement, here = self._agreement, {self._state.name}
            absent, others = agreement.roster.absent, self._channels.keys()
            presence, now = agreement.presence, time.monotonic()
            longest = 3 * agreement.rules.tick + 2.0
            audible = {name for name in others if presence.silence(name, now) < longest}
            finished = {name for name in others if presence.has_finished(name)}
            can_agree = agreement.rules.electorate.is_majority(audible | here)
            waits = can_agree and not agreement.blocked
            # Silent members will be suspended, if a majority is there to do that.
            open_ended = {name for name in others - finished - absent if name in audible or waits}
            untold = (finished & audible) - self._told
            return open_ended | untold

    def _exchange(self, sender: str, sheet: Sheet) -> Sheet:
        with self._lock:
            self._receive(sender, sheet)
            return self._agreement.sheet_for(sender)

    def _receive(self, sender: str, sheet: Sheet) -> None:
        if sheet.generation > self.base.generation:
            self._newer.add(sender)
            self._wake.set()
        try:
            self._agreement.receive(sender, sheet, time.monotonic())
        except Invalid as problem:
            self._state.reject("agreement", sender, str(problem))
        self._save()

    def _save(self) -> None:
        """Store new votes, and switch to a roster that they decide."""
        votes, before = self._agreement.votes, self._saved
        if votes == before:
            return
        self._store.save(votes)
        self._saved = votes
        self._wake.set()
        if votes.decision is not None and votes.decision != before.decision:
            self._state.follow_agreement(self._rosters.manifest(votes.decision.change))

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            try:
                self._send_sheets()
                self._fetch_manifest()
            except OSError as problem:
                why = f"votes cannot be saved: {problem.strerror or problem}"
                log = self._state.event_log
                log.write_throttled(30, "votes", "save failed", "error", why=why)
            if problem_text := self.problem:
                self._state.event_log.write_throttled(
                    LOG_SECONDS, ("blocked", problem_text), "cannot go on", "warning",
                    why=problem_text, remedy="Repair the silent member, or change the roster.",
                )  # fmt: skip
            self._ended.wait(MIN_PAUSE)
            self._wake.wait(self._agreement.rules.tick)

    def _send_sheets(self) -> None:
        progress = self._state.progress
        with self._lock:
            is_finished = progress.phase == "finished"
            if not is_finished:
                self._told.clear()
            self._agreement.tick(time.monotonic(), progress.step, finished=is_finished)
            self._save()
            sheets = {
                name: self._agreement.sheet_for(name)
                for name in self._channels
                if name not in self._calls
            }
            timeout = max(MIN_TIMEOUT, 2 * self._agreement.rules.tick)
            for name, sheet in sheets.items():
                request = wire.AgreementSheet(content=to_json(sheet)).SerializeToString()
                try:
                    method = self._channels[name].current().unary_unary(f"/{SERVICE}/Agree")
                except Rejected:  # a revocation
                    continue
                self._calls[name] = method.future(request, timeout=timeout)
        for name, sheet in sheets.items():
            if (call := self._calls.get(name)) is not None:
                call.add_done_callback(partial(self._done, name, sheet.finished))

    def _done(self, name: str, said_finished: bool, call: Any) -> None:
        """A member has answered, or did not in time."""
        with self._lock:
            self._calls.pop(name, None)
        try:
            answer = wire.AgreementSheet.FromString(call.result())
            sheet = parse_sheet(answer.content)
        except (grpc.RpcError, grpc.FutureCancelledError):
            return
        except (ValueError, DecodeError) as problem:
            self._state.reject("malformed", name, f"an answer that is no sheet: {problem}")
            return
        with self._lock:
            if said_finished:
                self._told.add(name)
            try:
                self._receive(name, sheet)
            except OSError:
                # The votes are not stored: they are tried again at the next tick.
                self._wake.set()

    def _fetch_manifest(self) -> None:
        """Get the newest roster of the operator from members that have it."""
        for name in list(self._newer):
            self._newer.discard(name)
            try:
                method = self._channels[name].current().unary_unary(f"/{SERVICE}/GetManifest")
                raw = method(wire.Empty().SerializeToString(), timeout=MIN_TIMEOUT)
                self._state.receive_manifest(wire.SignedManifest.FromString(raw), name)
            except (grpc.RpcError, DecodeError, Rejected):
                continue


def _store(folder: NodeFolder) -> VoteStore:
    return VoteStore(folder.run / "agreement")
