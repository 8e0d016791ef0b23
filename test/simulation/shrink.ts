// Makes a failing schedule smaller (delta debugging): fewer actions, then fewer
// machines, as long as it still fails.
import type { Schedule, TimedAction } from './schedule.ts';

const maximumTries = 600;

export async function shrink(
  schedule: Schedule,
  isFailing: (candidate: Schedule) => Promise<boolean>,
): Promise<Schedule> {
  let smallestSchedule = schedule;
  let tries = 0;

  async function attempt(candidate: Schedule): Promise<boolean> {
    tries += 1;
    if (tries > maximumTries || !(await isFailing(candidate))) return false;
    smallestSchedule = candidate;
    return true;
  }

  async function removeActions(): Promise<void> {
    for (let size = Math.ceil(smallestSchedule.actions.length / 2); size >= 1; size = Math.floor(size / 2))
      for (
        let start = smallestSchedule.actions.length - size;
        start >= 0 && tries <= maximumTries;
        start -= size
      )
        await attempt({ ...smallestSchedule, actions: smallestSchedule.actions.toSpliced(start, size) });
  }

  await removeActions();
  for (let machines = smallestSchedule.machines - 1; machines >= 1; machines -= 1)
    if (!(await attempt(withMachines(smallestSchedule, machines)))) break;
  await removeActions();
  return smallestSchedule;
}

/** The same actions on fewer machines: actions of the removed machines move to the others. */
function withMachines(schedule: Schedule, machines: number): Schedule {
  const actions = schedule.actions.map(({ atMs, action }): TimedAction => {
    if (!('machine' in action)) return { atMs, action };
    return { atMs, action: { ...action, machine: action.machine % machines } };
  });
  return { ...schedule, machines, actions };
}
