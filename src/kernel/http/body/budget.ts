// Bounds the memory of large bodies, for one caller and for all: a call with a body of 10 MiB takes about
// 80 MiB until its response is over, and without a bound the calls of one user could end the process.
import { Problem } from '../../problem.ts';

export interface BodyBudget {
  /** Throws a 429 when the large bodies of the caller, or of all callers, would exceed their limit. */
  take(caller: string, bytes: number): void;
  /** Returns the bytes of a body whose response is over. */
  give(caller: string, bytes: number): void;
}

export interface BodyBudgetLimits {
  perCaller: number;
  total: number;
}

/** Bodies up to this size are not counted: the number of connections bounds them. */
export const smallBodyBytes = 256 * 1024;

export function createBodyBudget({ perCaller, total }: BodyBudgetLimits): BodyBudget {
  const bytesByCaller = new Map<string, number>();
  let allBytes = 0;
  return {
    take(caller, bytes) {
      const callerBytes = (bytesByCaller.get(caller) ?? 0) + bytes;
      if (callerBytes > perCaller)
        throw tooMany(`The bodies of your unanswered requests exceed ${inMiB(perCaller)} together`);
      if (allBytes + bytes > total)
        throw tooMany('The server has no memory left for large requests at the moment');
      bytesByCaller.set(caller, callerBytes);
      allBytes += bytes;
    },
    give(caller, bytes) {
      const remainingBytes = (bytesByCaller.get(caller) ?? 0) - bytes;
      if (remainingBytes > 0) bytesByCaller.set(caller, remainingBytes);
      else bytesByCaller.delete(caller);
      allBytes -= bytes;
    },
  };
}

function inMiB(bytes: number): string {
  return `${bytes / 2 ** 20} MiB`;
}

function tooMany(reason: string): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    `${reason}; send this request again when another one is answered.`,
    {
      headers: { 'retry-after': '1' },
    },
  );
}
