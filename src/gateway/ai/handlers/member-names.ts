// Renames the members in errors of our own operations for clients of another format, so that an error
// names the member that the client sent.
import { Problem } from '../../../kernel/problem.ts';

/** Returns the client's name for one of our members; undefined if both names are the same. */
export type RenameMember = (member: string) => string | undefined;

/** Executes `work` and renames the members in a Problem that it throws. */
export async function withMemberNames<T>(rename: RenameMember, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof Problem ? renameMembers(error, rename) : error;
  }
}

function renameMembers(problem: Problem, rename: RenameMember): Problem {
  const { kind, code, message, param, details, headers, externalCode, cause } = problem;
  const name = param === null ? undefined : rename(param);
  if (param === null || name === undefined) return problem;
  return new Problem(kind, code, message.replaceAll(param, name), {
    param: name,
    headers,
    cause,
    ...(externalCode === undefined ? {} : { externalCode }),
    ...(details === undefined
      ? {}
      : { details: details.map((detail) => ({ ...detail, path: rename(detail.path) ?? detail.path })) }),
  });
}
