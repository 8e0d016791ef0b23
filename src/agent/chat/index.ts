// The room of chats: the sessions that are found by a chat's id, and the queue that takes what is sent to them.
export { createChat, type Chat, type ChatMessage, type ChatReceipt } from './chat.ts';
