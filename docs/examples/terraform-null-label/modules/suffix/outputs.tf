output "value" {
  description = "Lower-case hexadecimal digits."
  value       = local.value
}
