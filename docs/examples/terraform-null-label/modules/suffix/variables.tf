variable "seed" {
  description = "What the suffix is made from. The same seed gives the same suffix."
  type        = string
  nullable    = false
}

variable "length" {
  description = "How many characters are wanted. Six tell a few thousand names apart."
  type        = number
  default     = 6
  nullable    = false

  validation {
    condition     = var.length >= 4 && var.length <= 64 && floor(var.length) == var.length
    error_message = "The length must be a whole number from 4 to 64."
  }
}
