// Bugs that the simulation must find. Each changes the source of a real module, or of a model
// of the database or the journal, while it is loaded.

export interface PlantedBug {
  name: string;
  /** The first seed that found it when it was planted. */
  seed: number;
  /** `find` is in the file exactly once. */
  changes: { file: string; find: string; replace: string }[];
}

const allotments = 'src/gateway/credits/allotments';
const model = 'test/simulation/store-model.ts';
const journal = 'test/simulation/journal-model.ts';

export const plantedBugs: readonly PlantedBug[] = [
  {
    name: 'lease not checked',
    seed: 19,
    changes: [
      {
        file: `${allotments}/lease.ts`,
        find: 'return nowMs < lease.endsAtMs && jumpMs <= maximumClockJumpMs;',
        replace: 'return true;',
      },
    ],
  },
  {
    name: 'suspended machine not noticed',
    seed: 33,
    changes: [
      {
        file: `${allotments}/lease.ts`,
        find: 'return nowMs < lease.endsAtMs && jumpMs <= maximumClockJumpMs;',
        replace: 'return nowMs < lease.endsAtMs;',
      },
    ],
  },
  {
    name: 'suspension hidden by a clock that was set back',
    seed: 3756,
    changes: [
      {
        file: `${allotments}/lease.ts`,
        find: 'Math.abs(clock.now().getTime() - nowMs - lease.clockGapMs)',
        replace: '(clock.now().getTime() - nowMs - lease.clockGapMs)',
      },
    ],
  },
  {
    name: 'charge applied twice',
    seed: 5,
    changes: [
      { file: model, find: "if (journal.appliedSeq >= batch.toSeq) return 'repeated';", replace: '' },
      {
        file: model,
        find: "journal.appliedSeq === batch.expectedSeq ? 'applied' : 'mismatch'",
        replace: "'applied'",
      },
      { file: model, find: 'if (this.usage.has(usageId)) return', replace: 'if (seq < 0) return' },
    ],
  },
  {
    name: 'journal truncated early',
    seed: 1,
    changes: [
      {
        file: `${allotments}/maintenance.ts`,
        find: 'journal.markApplied(appliedSeq)',
        replace: 'journal.markApplied(Number.MAX_SAFE_INTEGER)',
      },
    ],
  },
  {
    name: 'give-back stays in memory',
    seed: 103,
    changes: [
      {
        file: `${allotments}/writes.ts`,
        find: '  allotment.amount = isLast ? 0n : allotment.amount - idleCredits(allotment);\n',
        replace: '  const lowered = isLast ? 0n : allotment.amount - idleCredits(allotment);\n',
      },
      {
        file: `${allotments}/writes.ts`,
        find:
          '  const { allotmentId, version, amount, charged, recall } = allotment;\n' +
          '  return { allotmentId, version, amount, charged, recall, end: isLast };',
        replace:
          '  const { allotmentId, version, charged, recall } = allotment;\n' +
          '  return { allotmentId, version, amount: lowered, charged, recall, end: isLast };',
      },
    ],
  },
  {
    name: 'give-back counted twice',
    seed: 1063,
    changes: [{ file: model, find: 'row === null || row.version !== version', replace: 'row === null' }],
  },
  {
    name: 'cap checked outside of the statement',
    seed: 9,
    changes: [
      {
        file: model,
        find: 'keyFree === null ? null : keyFree - keyPromised),',
        replace: 'keyFree === null || keyFree <= 0n ? keyFree : null),',
      },
    ],
  },
  {
    name: 'enlargement without an answer taken as granted',
    seed: 2,
    changes: [
      {
        file: `${allotments}/writes.ts`,
        find: '    const result = await runExclusively([allotment], () =>\n      store.allot({',
        replace: `    const result: AllotResult = await runExclusively([allotment], () =>
      ((request: Parameters<AllotmentStore['allot']>[0]) =>
        store.allot(request).catch(() => ({
          outcome: 'granted' as const,
          row: {
            ...request,
            version: version + 1,
            amount: allotment.amount + need,
            charged: allotment.charged,
            recall: 0n,
            isRecalled: false,
            isClosed: false,
          },
          available: 0n,
          idleElsewhere: 0n,
        })))({`,
      },
    ],
  },
  {
    name: 'recall ignored',
    seed: 4,
    changes: [
      {
        file: `${allotments}/give-backs.ts`,
        find: 'flaggedAllotments.push(allotment)',
        replace: 'void flaggedAllotments',
      },
    ],
  },
  {
    name: 'reservation released twice',
    seed: 6,
    changes: [
      {
        file: `${allotments}/reservation.ts`,
        find: "    if (phase === 'settled' || phase === 'released') return;\n    // A call is marked",
        replace: '    // A call is marked',
      },
    ],
  },
  {
    name: 'last byte before the sync',
    seed: 1,
    changes: [
      {
        file: `${allotments}/reservation.ts`,
        find: 'if (credits > 0n) await this.#context.sync(seq);',
        replace: 'if (credits > 0n) void this.#context.sync(seq);',
      },
    ],
  },
  {
    name: 'applied_seq taken from memory',
    seed: 44,
    changes: [
      {
        file: `${allotments}/replay.ts`,
        find: 'const from = (await store.appliedSeqs([journalId])).get(journalId) ?? 0;',
        replace: 'const from = 0;',
      },
    ],
  },
  {
    name: 'charge forgets what it took from the allotment',
    seed: 1,
    changes: [
      {
        file: `${allotments}/allotment.ts`,
        find: 'allotment.unapplied += coveredCredits;',
        replace: '',
      },
    ],
  },
  {
    name: 'journal of a live process replayed',
    seed: 17,
    changes: [
      {
        file: journal,
        find: "folder.state === 'present' && (folder.lockedBy === null || folder.lockedBy.state === 'dead')",
        replace: "folder.state === 'present'",
      },
    ],
  },
  {
    name: 'take-back right after an outage',
    seed: 372,
    changes: [
      {
        file: `${allotments}/maintenance.ts`,
        find: 'if (ledger.contact.unbrokenMs() < times.minimumContactMs) return;',
        replace: '',
      },
    ],
  },
  {
    name: 'charge takes the credits of other reservations',
    seed: 9,
    changes: [
      {
        file: `${allotments}/apply-loop.ts`,
        find: '({ ...line, covered })',
        replace: '({ ...line })',
      },
    ],
  },
  {
    name: 'refused charge drops its allotment',
    seed: 225,
    changes: [
      {
        file: `${allotments}/apply-loop.ts`,
        find: 'allotmentsOf([charge])',
        replace: 'allotmentsOf([])',
      },
    ],
  },
  {
    name: 'restored ledger not noticed',
    seed: 42,
    changes: [
      {
        file: `${allotments}/maintenance.ts`,
        find: '    await ledger.checkGeneration();',
        replace: '',
      },
    ],
  },
  {
    name: 'report counts charges that are applied',
    seed: 1,
    changes: [
      {
        file: `${allotments}/allotment.ts`,
        find: 'return { allotmentId, reserved, unapplied, charged, number };',
        replace: 'return { allotmentId, reserved, unapplied, number };',
      },
    ],
  },
  {
    name: 'stale give-back clears a later recall',
    seed: 14,
    changes: [
      { file: model, find: 'recall === undefined || row.recall <= recall;', replace: 'recall !== -1n;' },
    ],
  },
  {
    name: 'give-back answers recalls that its sender did not know',
    seed: 14,
    changes: [
      {
        file: `${allotments}/writes.ts`,
        find: 'const { allotmentId, version, amount, charged, recall } = allotment;',
        replace: 'const { allotmentId, version, amount, charged } = allotment;\n  const recall = 1_000_000n;',
      },
    ],
  },
  {
    name: 'amount of a row taken without the charges that it was lowered by',
    seed: 184,
    changes: [
      {
        file: `${allotments}/allotment.ts`,
        find: 'const amount = row.amount + row.charged - allotment.charged;',
        replace: 'const { amount } = row;',
      },
    ],
  },
  {
    name: 'give-back without the charges that were applied meanwhile',
    seed: 2,
    changes: [
      {
        file: model,
        find: 'const chargedSince = charged === undefined ? 0n : larger(row.charged - charged, 0n);',
        replace: 'const chargedSince = 0n;',
      },
    ],
  },
  {
    name: 'give-back without an answer forgotten',
    seed: 40,
    changes: [
      {
        file: `${allotments}/writes.ts`,
        find: '  allotment.isGiveBackUncertain = true;\n',
        replace: '',
      },
    ],
  },
  {
    name: 'report answered before its charges are applied',
    seed: 540,
    changes: [
      {
        file: `${allotments}/allotment-ledger.ts`,
        find: 'if (reportNumber <= this.#answeredReport) return;\n    await this.applyAll();',
        replace: 'if (reportNumber <= this.#answeredReport) return;',
      },
    ],
  },
  {
    name: 'balance read before the numbered answer',
    seed: 55,
    changes: [
      {
        file: `${allotments}/ask-reports.ts`,
        find: 'if (number >= (requests.get(respondingId) ?? 0))',
        replace: 'if (number >= 0)',
      },
    ],
  },
  {
    name: 'idle credits reported as reserved',
    seed: 19,
    changes: [
      {
        file: `${allotments}/allotment.ts`,
        find: 'return { allotmentId, reserved, unapplied, charged, number };',
        replace:
          'return { allotmentId, reserved: reserved + idleCredits(allotment), unapplied, charged, number };',
      },
    ],
  },
  {
    name: 'idle credits shown as held',
    seed: 19,
    changes: [
      {
        file: model,
        find: 'idleCredits += row.amount - row.reserved - row.unapplied;',
        replace: 'idleCredits += 0n;',
      },
    ],
  },
  {
    name: 'recall flag lost in a grant',
    seed: 14,
    changes: [
      {
        file: model,
        find: 'target.isRecalled ||= this.isAwaited(request);',
        replace: 'target.isRecalled = this.isAwaited(request);',
      },
    ],
  },
  {
    name: 'recall unanswered where nothing is idle',
    seed: 27,
    changes: [
      {
        file: `${allotments}/give-backs.ts`,
        find: 'if (row.isRecalled || idleCredits(allotment) > 0n || !isInUse(allotment))',
        replace: 'if (idleCredits(allotment) > 0n || !isInUse(allotment))',
      },
    ],
  },
  {
    name: 'recall served to the youngest ticket',
    seed: 3,
    changes: [
      {
        file: model,
        find: 'return a.createdMs < b.createdMs ||',
        replace: 'return a.createdMs > b.createdMs ||',
      },
    ],
  },
  {
    name: 'recall served to the next asker',
    seed: 6,
    changes: [
      {
        file: model,
        find: 'grantable: least(accountFree - accountPromised,',
        replace: 'grantable: least(accountFree,',
      },
    ],
  },
];
