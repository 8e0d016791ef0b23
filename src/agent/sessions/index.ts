// Sessions: the event log, the runs that write it, and the routes to both.
export { createChat, type Chat } from './chat.ts';
export {
  createSessions as createSessionRoom,
  preloadModelLoop as preloadLoop,
  type Sessions as SessionRoom,
} from './compose.ts';
export type { AttachmentInput as Attachment } from './attachments/files.ts';
export type { InputSubmitter as Inputs } from './submit.ts';
export type { SessionKind, SessionStore } from './event-log/session-store.ts';
