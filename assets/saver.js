// Saves `props.value` (name, type, base64) as a file whenever the server sets it.
watch('value', () => {
  const file = props.value;
  if (!file || !file.base64) return;
  const bytes = Uint8Array.from(atob(file.base64), (letter) => letter.charCodeAt(0));
  const address = URL.createObjectURL(new Blob([bytes], {type: file.type}));
  const link = document.createElement('a');
  link.href = address;
  link.download = file.name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
});
