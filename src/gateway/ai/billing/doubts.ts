// Logs implausible usage, so that the operator can raise alarms on it.
import type { Log } from '../../../kernel/log.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { isBeyondLimit, tokensOfText } from '../metering/token-count.ts';
import { type CountInput, outputLimit, type UsageCount } from './count.ts';

/** Logs implausible usage of the provider, or an implausible length of its answer. */
export function logDoubts(
  log: Log,
  count: UsageCount,
  { model, bound, progress, reserved }: CountInput & { model: CatalogModel; reserved: bigint },
): void {
  const { id, provider } = model;
  if (count.doubt !== undefined) {
    const charge = count.doubt === 'absurd' ? 'the bound of the call is charged' : 'our own count is charged';
    log.error(
      {
        alarm: 'unbelievable_usage',
        model: id,
        provider,
        claimed: progress.claim,
        held: String(reserved),
      },
      `a provider reported an impossible usage; ${charge}`,
    );
  }
  const output = tokensOfText(progress.bytes.output) + tokensOfText(progress.bytes.reasoning);
  const limit = outputLimit(bound);
  if (count.isOwnCount && isBeyondLimit(output, limit))
    log.error(
      { alarm: 'output_beyond_limit', model: id, provider, output, limit },
      'a provider sent an answer far beyond its output limit; the limit is charged',
    );
}
