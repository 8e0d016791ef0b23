// Durations in options: seconds, or a number with a unit.
import { SettingError } from '../../kernel/settings.ts';

const unitSeconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 };
const maxSeconds = 3_650 * 86_400;

/** Parses the value of `--ttl`. Throws a SettingError. */
export function readTtlSeconds(text: string): number {
  const [, amount, unit = 's'] = /^(\d{1,9})([smhd])?$/.exec(text) ?? [];
  const ttlSeconds = Number(amount) * (unitSeconds[unit] ?? 1);
  if (!(ttlSeconds >= 1 && ttlSeconds <= maxSeconds))
    throw new SettingError(
      `--ttl takes seconds, or a number with m, h or d such as 90d, ten years at most; not "${text}".`,
    );
  return ttlSeconds;
}
