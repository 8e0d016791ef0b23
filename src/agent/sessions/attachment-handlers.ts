// The route of the content of attachments.
import { includesTag } from '../../kernel/etag.ts';
import { Problem } from '../../kernel/problem.ts';
import { cacheHeaders, contentHeaders, mediaTypeOf } from './attachments/download.ts';
import type { AttachmentRecord } from './attachments/store.ts';
import { readEvent, type SessionEvent } from './event-log/events.ts';
import { segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

export function attachmentHandlers(options: HandlerOptions): SessionHandlers<'sessions.getAttachment'> {
  const { files, requireSession } = options;
  return {
    'sessions.getAttachment': async ({ path, headers: { 'if-none-match': ifNoneMatch } }) => {
      const session = await requireSession(path.sessionId);
      const attachment = await requireAttachment(options, session, path.attachmentId);
      const headers = cacheHeaders(attachment);
      if (ifNoneMatch !== undefined && includesTag(ifNoneMatch, headers.etag))
        return { status: 304, headers };
      const content = await files.read(attachment.sessionKey, attachment.storedName);
      if (content === null)
        throw attachmentNotFound('The file of this attachment was removed from the disk.');
      return {
        status: 200,
        content,
        mediaType: mediaTypeOf(attachment),
        headers: { ...headers, ...contentHeaders(attachment) },
      };
    },
  };
}

/** Throws 404 unless its message is one of the session, or of its past as a fork. */
async function requireAttachment(
  { attachments, events }: HandlerOptions,
  session: SessionRecord,
  attachmentId: string,
): Promise<AttachmentRecord> {
  const attachment = (await attachments.find([attachmentId])).get(attachmentId);
  if (attachment === undefined) throw attachmentNotFound();
  // Look in the message: a fork has copies of the messages of its ancestors, or refers to them.
  const messageEvents = await events.messageEvents(segmentsOf(session), attachment.messageId);
  if (!messageEvents.some((event) => hasAttachment(readEvent(event), attachmentId)))
    throw attachmentNotFound();
  return attachment;
}

function hasAttachment(event: SessionEvent, attachmentId: string): boolean {
  return (
    event.type === 'message.completed' &&
    event.message.parts.some(
      (part) => part.type === 'data-attachment' && part.data.attachmentId === attachmentId,
    )
  );
}

function attachmentNotFound(message = 'There is no attachment of this id in the session.'): Problem {
  return new Problem('not_found', 'attachment_not_found', message, { param: 'attachmentId' });
}
