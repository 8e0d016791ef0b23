// `townhall audit`: lists the audit log of a running gateway, and verifies the log's hash chain in the
// gateway's data.
import { audit, auditStore } from '../../gateway/audit/index.ts';
import type { ChainFault, ChainVerdict } from '../../gateway/audit/index.ts';
import { systemClock } from '../../kernel/clock.ts';
import { SettingError } from '../../kernel/settings.ts';
import { resourceAction, resourceNotes } from '../call/resource.ts';
import { action, type Command } from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { askServer, gatewayDatabase, withDatabase } from '../data/database-location.ts';
import { dataNotes, dataOptions, readConfigHere } from '../data/gateway-config.ts';

export const command: Command = {
  description: [
    'Lists what administrators, users and the server itself changed, and verifies the hash chain of this log. "verify" exits 1',
    'and names the entries when one was altered, removed or inserted. It prints the head, which is the last hash: store',
    'it elsewhere, and pass it with --head later to prove that the log still contains its earlier entries.',
  ],
  actions: [
    resourceAction({
      path: 'list',
      summary: 'The changes, the newest first; target_id=… and from=… narrow the list.',
      operationId: 'audit.listEntries',
      columns: [
        'created_at',
        'action',
        'actor_id',
        'target_id',
        'outcome',
        'actor_kind',
        'address',
        'target_kind',
        'request_id',
      ],
    }),
    action({
      path: 'verify',
      summary: 'Verifies the hash chain in the data of the gateway.',
      options: {
        head: {
          kind: 'value',
          placeholder: 'HASH',
          summary: 'A hash printed earlier, which the chain must still contain.',
        },
        ...dataOptions,
      },
      async run({ options, ...context }) {
        const head = options.head ?? null;
        if (head !== null && !/^[0-9a-f]{64}$/.test(head))
          throw new SettingError('--head needs a hash of 64 hexadecimal digits.');
        const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
        const location = gatewayDatabase(config);
        // Reads the database without the master key: the log contains no secrets, so an auditor
        // does not need it.
        const verdict = await askServer(location, { name: 'audit.verify', input: head }, () =>
          withDatabase(location, (database) =>
            audit({ store: auditStore(database), log: stderrLog().log, clock: systemClock }).verify(head),
          ),
        );
        if (options.json) context.print(JSON.stringify(serializeVerdict(verdict)));
        else {
          const printLine = verdict.ok ? context.print : context.printError;
          for (const line of describe(verdict)) printLine(line);
        }
        return verdict.ok ? 0 : 1;
      },
    }),
  ],
  notes: [...resourceNotes, ...dataNotes],
};

function serializeVerdict({ ok, batches, entries, pending, head, faults: mismatches }: ChainVerdict) {
  return {
    ok,
    batches,
    entries,
    pending,
    head,
    faults: mismatches.map(({ fault, batch, entryId }) => ({ fault, batch, entry_id: entryId })),
  };
}

const predicates: Record<ChainFault['fault'], string> = {
  entry_altered: 'was altered',
  entry_missing: 'is gone',
  entry_not_chained: 'is not part of the chain',
  batch_altered: 'does not match its hash',
  batch_missing: 'does not follow from the preceding batch',
  head_missing: 'is no longer in the chain',
};

function describe({ ok, batches, entries, pending, head, faults: mismatches }: ChainVerdict): string[] {
  const size = `${entries} entries in ${batches} batches, ${pending} not chained yet; head ${head ?? 'none'}`;
  if (ok) return [`The audit log is intact: ${size}.`];
  return [
    `The audit log is not intact: ${size}.`,
    ...mismatches.map((fault) => `${subjectOf(fault)} ${predicates[fault.fault]}.`),
  ];
}

function subjectOf({ entryId, batch }: ChainFault): string {
  if (entryId !== null) return `Entry ${entryId}${batch === null ? '' : ` of batch ${batch}`}`;
  return batch === null ? 'The hash of --head' : `Batch ${batch}`;
}
