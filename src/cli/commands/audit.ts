// `townhall audit verify`: walks the chain of the audit log and exits 1 when an entry was altered or is gone.
import { audit, auditStore } from '../../gateway/audit/index.ts';
import type { ChainFault, ChainVerdict } from '../../gateway/audit/index.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command } from '../command-line/command.ts';
import { gatewayConfigHere, hereHelp } from '../data/gateway-config.ts';
import { commandLog, gatewayPlace, withDatabase } from '../data/database-location.ts';
import { askRunning } from '../data/running-gateway.ts';

export const auditCommand: Command = {
  help: () =>
    [
      'Usage: townhall audit verify [OPTIONS]',
      '',
      'Walks the chain of the audit log. Exits 1 and names the entries when one was altered, removed or slipped in.',
      'The head that it prints is the last hash: keep it elsewhere, and give it with --head to see that the log still',
      'holds what it held then.',
      '',
      '  --head HASH            a hash printed earlier, which the chain must still contain',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      '  --json                 print the result as JSON',
      '',
      ...hereHelp,
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, {
      flags: ['database-path', 'head'],
      switches: ['json'],
    });
    if (words.length !== 1 || words[0] !== 'verify')
      throw new SettingError('say "townhall audit verify"; see --help.');
    const head = flags['head'] ?? null;
    if (head !== null && !/^[0-9a-f]{64}$/.test(head))
      throw new SettingError('--head takes a hash of 64 hexadecimal digits.');
    const config = await gatewayConfigHere({ 'database-path': flags['database-path'] }, input);
    const verdict = await askRunning(config, { name: 'audit.verify', input: head }, () =>
      verifyHere(config, head),
    );
    if (flags['json'] === 'true') input.print(JSON.stringify(wire(verdict)));
    else for (const line of describe(verdict)) (verdict.ok ? input.print : input.complain)(line);
    return verdict.ok ? 0 : 1;
  },
};

// Beside the servers and without the master key: the log holds no secrets, and whoever examines it need not.
async function verifyHere(config: GatewayConfig, head: string | null): Promise<ChainVerdict> {
  return withDatabase(gatewayPlace(config), (database) =>
    audit({ store: auditStore(database), log: commandLog().log, clock: systemClock }).verify(head),
  );
}

function wire({ ok, batches, entries, pending, head, faults }: ChainVerdict) {
  return {
    ok,
    batches,
    entries,
    pending,
    head,
    faults: faults.map(({ fault, batch, entryId }) => ({ fault, batch, entry_id: entryId })),
  };
}

const words: Record<ChainFault['fault'], string> = {
  entry_altered: 'was altered',
  entry_missing: 'is gone',
  entry_not_chained: 'is not part of the chain',
  batch_altered: 'does not have its hash',
  batch_missing: 'does not follow from the one before',
  head_missing: 'is not in the chain any more',
};

function describe(verdict: ChainVerdict): string[] {
  const { ok, batches, entries, pending, head } = verdict;
  const size = `${entries} entries in ${batches} batches, ${pending} not chained yet; head ${head ?? 'none'}`;
  if (ok) return [`The audit log is whole: ${size}.`];
  const faults = verdict.faults.map(({ fault, batch, entryId }) => {
    const what =
      entryId === null
        ? batch === null
          ? 'The given head'
          : `Batch ${batch}`
        : `Entry ${entryId}${batch === null ? '' : ` of batch ${batch}`}`;
    return `${what} ${words[fault]}.`;
  });
  return [`The audit log is not whole: ${size}.`, ...faults];
}
