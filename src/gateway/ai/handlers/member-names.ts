// Errors of our own operations for clients of another format: they name the member that the client sent.
import { Problem } from '../../../kernel/problem.ts';

/** The member of the client's format for one of ours; undefined for a member of the same name. */
export type RenameMember = (member: string) => string | undefined;

/** Settles like the work, with the members of a thrown Problem renamed. */
export async function withMemberNames<T>(rename: RenameMember, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof Problem ? renameMembers(error, rename) : error;
  }
}

function renameMembers(problem: Problem, rename: RenameMember): Problem {
  const { kind, code, message, param, details, headers, foreignCode, cause } = problem;
  const name = param === null ? undefined : rename(param);
  if (param === null || name === undefined) return problem;
  return new Problem(kind, code, message.replaceAll(param, name), {
    param: name,
    headers,
    cause,
    ...(foreignCode === undefined ? {} : { foreignCode }),
    ...(details === undefined
      ? {}
      : { details: details.map((detail) => ({ ...detail, path: rename(detail.path) ?? detail.path })) }),
  });
}
