// Occurrences of a cron expression in a time zone.
import { CronExpressionParser } from 'cron-parser';
import { refusal } from '../../refusal.ts';

/** The first occurrence after a time. Throws a Problem for an invalid expression or time zone. */
export function nextOccurrence(cron: string, timeZone: string, afterTime: Date): Date {
  if (cron.trim().split(/\s+/).length !== 5)
    throw refusal(
      'A cron expression has five fields: minute, hour, day of the month, month and day of the week.',
    );
  try {
    return CronExpressionParser.parse(cron, { currentDate: afterTime, tz: timeZone }).next().toDate();
  } catch (cause) {
    throw refusal('The cron expression or the time zone is invalid.', cause);
  }
}
